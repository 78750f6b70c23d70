"""Tables that the scripts print and write to ``benchmarks/``: Markdown, with date and hardware."""

import csv
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
PAPER = BENCHMARKS / "paper"  # tables of `reproduce.sh`


def table(header: list[str], rows: list[list[str]]) -> str:
    """Format a Markdown table with columns of equal width."""
    cells = [header, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |" for r in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def machine() -> str:
    """Describe the machine and the libraries in one line."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    if torch.cuda.is_available():
        model += f", {torch.cuda.get_device_name()}"
    return (
        f"{model}, {torch.get_num_threads()} thread per rank, Python {platform.python_version()}, "
        f"torch {torch.__version__}, numpy {np.__version__}"
    )


def hardware() -> str:
    """Return the date, and what `machine` says."""
    return f"{datetime.now(UTC).date().isoformat()}, {machine()}"


def publish(name: str, title: str, text: str) -> None:
    """Print a result and write it to ``benchmarks/NAME.md``."""
    content = f"# {title}\n\n{hardware()}\n\n{text}\n"
    print(content)
    BENCHMARKS.mkdir(exist_ok=True)
    (BENCHMARKS / f"{name}.md").write_text(content)


def write_csv(name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table to ``benchmarks/paper/NAME.csv``."""
    PAPER.mkdir(parents=True, exist_ok=True)
    with open(PAPER / f"{name}.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([header, *rows])


def read_csv(name: str) -> list[dict[str, str]]:
    """Read the rows of ``benchmarks/paper/NAME.csv``."""
    with open(PAPER / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


class KeptRows(dict[tuple[str, ...], dict[str, str]]):
    """The rows of ``benchmarks/NAME.csv`` by what their first columns hold; those measured anew replace the old ones.

    Parameters
    ----------
    keys, columns
        Names of the first columns, and of the others.
    """

    def __init__(self, name: str, keys: Sequence[str], columns: Sequence[str]):
        self._path, self._keys, self._columns = BENCHMARKS / f"{name}.csv", keys, columns
        if self._path.exists():
            with open(self._path, newline="") as file:
                super().__init__(
                    (tuple(row.pop(key) for key in keys), row) for row in csv.DictReader(file)
                )

    def write(self) -> None:
        """Write all of them."""
        with open(self._path, "w", newline="") as file:
            writer = csv.DictWriter(file, (*self._keys, *self._columns), lineterminator="\n")
            writer.writeheader()
            for key, row in self.items():
                writer.writerow(dict(zip(self._keys, key, strict=True)) | row)
