"""Iterations of the paper's job on several numbers of ranks, after its Table 4.

2048 x 2048 to a mean absolute error of 0.05, with one level (the paper's four phases, exchanged
once per iteration or after every phase, and the additive sweep) and with two. More ranks than cores
are fine: only iterations are counted.

Usage: bench_iterations.py [CELLS]
"""

import sys
import tempfile
from pathlib import Path

from ranks import mosaicdd
from tables import publish, table

_RANKS = (1, 2, 4, 8, 16)
_PAPER = (3200, 3250, 3250, 3300, 3400)
_METHODS = {
    "one level, four phases, one exchange per iteration": ["--levels", "1", "--sweep", "phases"],
    "one level, four phases, an exchange after each": [
        *("--levels", "1", "--sweep", "phases", "--sync", "phase")
    ],
    "one level, additive": ["--levels", "1", "--sweep", "additive"],
    "two levels": ["--levels", "2"],
}


def main(cells: int) -> None:
    """Solve with each method on each number of ranks, print the table and write it."""
    rows = [["the paper", *map(str, _PAPER)]] if cells == 2048 else []
    for method, options in _METHODS.items():
        rows.append([method, *(str(_iterations(cells, ranks, options)) for ranks in _RANKS)])
    header = ["ranks", *map(str, _RANKS)]
    text = (
        f"The shipped linear network, float64, {cells} x {cells} until the MAE of the interface "
        f"against the fast sine transform is 0.05.\n\n{table(header, rows)}\n\n"
        "The boundary data are not the paper's, which are not published."
    )
    publish("iterations", "Iterations against the number of ranks", text)


def _iterations(cells: int, ranks: int, options: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        job = ["solve", "-o", str(Path(folder) / "out.h5"), "--cells", f"{cells}x{cells}"]
        return mosaicdd(ranks, *job, "--until-mae", "0.05", *options)["iterations"]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2048)
