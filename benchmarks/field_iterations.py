"""Iterations in media and flows: over the size of the domain, and over the number of ranks.

``mosaicdd solve`` to a true relative residual of 1e-8, with a random source and zero sides. *flow 2* and
*flow 20* turn about the middle of the domain with these cell Peclet numbers at its sides. With more than
one rank the fields are compared with those of one: the largest difference over the field's range.

Rows are kept in ``benchmarks/field_iterations.csv``, where those that are measured anew replace the old ones, and
all are written to ``benchmarks/field_iterations.md``.
"""

import itertools
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import h5py
import numpy as np
from common import KeptRows, mosaicdd, publish, table
from media import MEDIA, rotating, spe10

_FLOWS = {"flow 2": 2.0, "flow 20": 20.0}
_KINDS = (*MEDIA, "spe10", *_FLOWS)
_KEYS = ("medium", "cells", "ranks")
_COLUMNS = ("iterations", "residual", "difference")
_rows = partial(KeptRows, "field_iterations", _KEYS, _COLUMNS)
_SPACING = 1 / 64  # of ``mosaicdd solve``

SMALL = {"cells": [64], "media": ["smooth"], "ranks": [1, 2]}


def main(
    spe10_file: Path | None = None,
    *,
    cells: list[int] = (256, 512, 1024),
    media: list[str] = _KINDS,
    ranks: list[int] = (1, 2, 3, 4, 6),
) -> None:
    """Measure the rows, and write the table."""
    for kind, size in itertools.product(media, cells):
        if kind == "spe10" and spe10_file is None:
            continue
        counts = ranks if size == min(cells) else [1]
        with tempfile.TemporaryDirectory() as folder:
            _measure(kind, size, counts, Path(folder), spe10_file)
    _publish(_rows())


def _measure(kind: str, cells: int, counts: Sequence[int], folder: Path, path: Path | None) -> None:
    """Solve on each number of ranks, and keep the rows."""
    options = _options(kind, cells, folder, path)
    fields: list[np.ndarray] = []
    for ranks in counts:
        output, several = folder / f"{ranks}.h5", len(counts) > 1
        shape = ["--cells", f"{cells}x{cells}", "--rtol", "1e-8", "--boundary", "expr:0"]
        shape += ["--keep", "field" if several else "interface"]
        report = mosaicdd(ranks, "solve", "-o", str(output), *shape, *options)
        row = {
            "iterations": str(report["iterations"]),
            "residual": f"{report['discrete_residual']:.1e}",
            "difference": "",
        }
        if several:
            with h5py.File(output) as file:
                fields.append(file["solution"][()])
            distance = abs(fields[-1] - fields[0]).max() / np.ptp(fields[0])
            row["difference"] = f"{distance:.0e}"
        rows = _rows()
        rows[kind, str(cells), str(ranks)] = row
        print(kind, cells, ranks, row, flush=True)
        rows.write()


def _options(kind: str, cells: int, folder: Path, path: Path | None) -> list[str]:
    """Write the fields of a problem to files, and return the options that name these."""
    nodes = (cells + 1, cells + 1)
    pde, fields = "diffusion", {"f": np.random.default_rng(1).standard_normal(nodes)}
    if kind in _FLOWS:
        pde = "advection-diffusion"
        fields |= rotating(nodes, _FLOWS[kind], _SPACING)
    elif kind == "spe10" and path is not None:
        fields["a"] = spe10(nodes, path)
    else:
        fields["a"] = MEDIA[kind](nodes, np.random.default_rng(0))
    options = ["--pde", pde]
    for name, values in fields.items():
        np.save(folder / f"{name}.npy", values)
        options += ["--field", f"{name}={folder / name}.npy"]
    return options


def _publish(rows: dict[tuple[str, str, str], dict[str, str]]) -> None:
    """Write the tables over the sizes and over the ranks."""
    kinds = [kind for kind in _KINDS if any(key[0] == kind for key in rows)]
    sizes = sorted({key[1] for key in rows}, key=int)
    counts = sorted({key[2] for key in rows}, key=int)
    empty = dict.fromkeys(_COLUMNS, "")
    over_sizes = []
    for kind in kinds:
        here = [rows.get((kind, size, "1"), empty) for size in sizes]
        worst = max((row["residual"] for row in here if row["residual"]), key=float)
        over_sizes.append([kind, *(row["iterations"] for row in here), worst])
    over_ranks = []
    for kind in kinds:
        here = [rows.get((kind, sizes[0], count), empty) for count in counts]
        distances = [float(row["difference"]) for row in here if row["difference"]]
        largest = f"{max(distances):.0e}" if distances else ""
        over_ranks.append([kind, *(row["iterations"] for row in here), largest])
    sized = [f"{size} x {size}" for size in sizes]
    text = [
        "## One rank",
        table(["medium", *sized, "largest residual"], over_sizes),
        f"## {sized[0]} on several ranks",
        table(["medium", *counts, "largest difference"], over_ranks),
    ]
    publish("field_iterations", "Iterations in media", *text)
