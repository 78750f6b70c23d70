"""The metrics of a training: one JSON object per line and validation, readable while it runs."""

import json
import math
from os import PathLike
from pathlib import Path


class MetricsFile:
    """Appends rows to a file.

    Parameters
    ----------
    kept
        Rows of an earlier run up to this step stay; None starts an empty file.
    """

    def __init__(self, path: str | PathLike, kept: int | None = None):
        self._path = Path(path)
        rows = []
        if kept is not None and self._path.exists():
            rows = [row for row in read_metrics(self._path) if row["step"] <= kept]
        self._path.write_text("".join(map(_line, rows)))

    def append(self, row: dict) -> None:
        """Write one row of numbers by name; what is not finite becomes null."""
        with self._path.open("a") as file:
            file.write(_line(row))


def read_metrics(path: str | PathLike) -> list[dict]:
    """Read all complete rows."""
    rows = []
    for line in Path(path).read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:  # the last line of a run that was killed
            continue
    return rows


def _line(row: dict) -> str:
    finite = {
        k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()
    }
    return json.dumps(finite) + "\n"
