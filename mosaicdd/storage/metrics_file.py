"""The metrics of a training, readable while it runs: lines of JSON, and events for TensorBoard.

A row of numbers by name is written per validation. The optional dependency `tensorboard` has its
home here.

JSON for scripts: exactly one object on one line.
"""

import importlib.util
import json
import math
import os
from os import PathLike
from pathlib import Path
from typing import Any

from mosaicdd.storage.atomic import atomic_file, naming


def json_line(report: dict) -> str:
    """Return a report as JSON, which knows no NaN and no infinity: these are null."""
    return json.dumps(_plain(report), allow_nan=False)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(entry) for name, entry in value.items()}
        case list() | tuple():
            return [_plain(entry) for entry in value]
        case float() if not math.isfinite(value):
            return None
    return value


class MetricsFile:
    """Appends rows to a file; rows of an earlier run up to the step ``kept`` stay, None starts an empty file."""

    def __init__(self, path: str | PathLike, kept: int | None = None):
        self._path = Path(path)
        rows = []
        if kept is not None and self._path.exists():
            rows = [row for row in read_metrics(self._path) if row["step"] <= kept]
        with atomic_file(path) as temporary:
            temporary.write_text("".join(f"{json_line(row)}\n" for row in rows))

    def append(self, row: dict) -> None:
        """Write one row of numbers by name; what is not finite becomes null."""
        with naming(self._path), self._path.open("a") as file:
            file.write(f"{json_line(row)}\n")


def read_metrics(path: str | PathLike) -> list[dict]:
    """Read all complete rows."""
    rows = []
    for line in Path(path).read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:  # the last line of a run that was killed
            continue
    return rows


def require_tensorboard(folder: str | PathLike) -> Path:
    """Return the folder of events, made if there is none; the package must be installed."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ValueError(
            "the package tensorboard is not installed: pip install 'mosaicdd[tensorboard]', or do "
            "without it (the metrics are in MODEL.metrics.jsonl, too)"
        )
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file, a folder is needed")
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"the folder {folder} is read-only; choose another one")
    return folder


class TensorBoardEvents:
    """Appends rows to an event file; of an earlier run in the folder all is shown, or up to the step ``kept``."""

    def __init__(self, folder: str | PathLike, kept: int | None = None):
        from torch.utils.tensorboard import SummaryWriter  # takes a second to import

        self._writer = SummaryWriter(folder, purge_step=None if kept is None else kept + 1)

    def append(self, row: dict) -> None:
        """Write one row of numbers by name, at its ``step``; readable at once."""
        for name, value in row.items():
            if name != "step":
                self._writer.add_scalar(name, value, row["step"])
        self._writer.flush()
