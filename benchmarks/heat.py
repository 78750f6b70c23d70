"""Heat with a moving source: steps of mosaicdd beside steps by PETSc: a CHOLMOD factor or a multigrid that is kept.

One thread, float64, 4 x 4
domain lengths, zero sides, BDF2 from zero in steps of 0.01; seconds are wall time of all steps over their number,
the source evaluated and, where the two differ, everything else included. All take the same formula; how far from
CHOLMOD's each ends, in root mean square, stands beside what the steps are estimated to add to the error. mosaicdd
solves for each step by transforms, to rounding, or *on subdomains* to 0.05 of its estimated error, far below it;
CHOLMOD solves to rounding, as it must, and the multigrids to 1e-6 of the right-hand side, from where the last two
steps point to: as the column *apart* shows, about as far as mosaicdd. Rows are kept in ``benchmarks/heat.csv``, where those measured anew replace the old
ones, and all are written to ``benchmarks/heat.md``.
"""

import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from common import KeptRows, publish, table
from moving_source import moving_source
from peers import MULTIGRIDS, environment_of, petsc_described, petsc_python

import mosaicdd as m
from mosaicdd.discretisation.discrete import DirichletSystem
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.operators.elliptic import EllipticOperator

_DT = 0.01
_RTOL = 1e-6  # of the multigrids
_PETSC = {"CHOLMOD": "cholmod"} | MULTIGRIDS
_OURS = {"mosaicdd": None, "mosaicdd on subdomains": "exact"}  # and by which local solver
_BY = (*_OURS, *_PETSC)
_COLUMNS = (
    *("setup", "a step", "of that source", "of that solve", "iterations"),
    *("error of steps", "of solves", "apart"),
)

SMALL = {"cells": 64, "steps": 3}


def main(cells: int = 1024, steps: int = 60, *, by: list[str] = _BY) -> None:
    """Measure, and write the table."""
    rows = KeptRows("heat", ("cells", "by"), _COLUMNS)
    for name, local_solver in _OURS.items():
        if name in by:
            rows[str(cells), name] = _ours(cells, steps, name, local_solver)
    for name in _PETSC:
        if name in by and petsc_python() is not None:
            rows[str(cells), name] = _theirs(cells, steps, name)
    fields = {name: _field_of(name, cells, steps) for name in _BY}
    for name, path in fields.items():
        if name != "CHOLMOD" and path.exists() and fields["CHOLMOD"].exists():
            apart = np.load(path) - np.load(fields["CHOLMOD"])
            rows[str(cells), name]["apart"] = f"{np.sqrt(np.mean(apart**2)):.1e}"
    rows.write()
    _publish(rows)


def _ours(cells: int, steps: int, name: str, local_solver: str | None) -> dict[str, str]:
    """March by the library; the source is a function of arrays of coordinates."""
    spent = [0.0]

    def source(x: np.ndarray, y: np.ndarray, t: float) -> np.ndarray:
        start = time.perf_counter()
        values = moving_source(x[0], y[:, :1], t)
        spent[0] += time.perf_counter() - start
        return values

    problem = m.Problem(m.Domain((cells, cells), 4 / cells), "heat", {"f": source})
    how = {"dt": _DT, "local_solver": local_solver}
    m.march(problem, 0.0, steps=2, every=2, **how)  # what is loaded once per process
    spent[0] = 0.0
    series = m.march(problem, 0.0, steps=steps, every=steps, **how)
    report = series.report
    np.save(_field_of(name, cells, steps), series.field[1:-1, 1:-1])
    return {
        "setup": f"{report['seconds']['setup']:.2f}",
        "a step": f"{report['seconds']['march'] / steps:.4f}",
        "of that source": f"{spent[0] / steps:.4f}",
        "iterations": f"{report['iterations'] / steps:.1f}",
        "error of steps": f"{report['time_error']:.1e}",
        "of solves": f"{report['solver_error']:.1e}",
    }


def _theirs(cells: int, steps: int, name: str) -> dict[str, str]:
    """March with a solver that is set up once, in a process of a Python that has PETSc."""
    h = 4 / cells
    operator = EllipticOperator(c=1.5 / _DT)
    matrix = DirichletSystem(operator, Grid((cells, cells), h)).matrix
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "system.npz"
        arrays = {name: getattr(matrix, name) for name in ("data", "indices", "indptr")}
        grid = (cells - 1, cells - 1)
        np.savez(path, cells=cells, spacing=h, dt=_DT, steps=steps, grid=grid, **arrays)
        python = str(petsc_python())
        script = Path(__file__).with_name("heat_petsc.py")
        command = [python, str(script), str(path), _PETSC[name], str(_RTOL)]
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, env=environment_of(python), check=True
        )
        facts = json.loads(ended.stdout.splitlines()[-1])
        np.save(_field_of(name, cells, steps), np.load(f"{path}.solution.npy"))
    return {
        "setup": f"{facts['setup']:.2f}",
        "a step": f"{facts['march'] / steps:.4f}",
        "of that source": f"{facts['source'] / steps:.4f}",
        "of that solve": f"{facts['solve'] / steps:.4f}",
        "iterations": "" if name == "CHOLMOD" else f"{facts['iterations'] / steps:.1f}",
    }


def _field_of(by: str, cells: int, steps: int) -> Path:
    """Return where the last field is kept, for a comparison with another's."""
    return Path(tempfile.gettempdir()) / f"heat_{by}_{cells}_{steps}.npy"


def _publish(rows: dict[tuple[str, str], dict[str, str]]) -> None:
    """Write the table; the ratios are those of a step to the fastest peer's, and to its solve alone."""
    lines = []
    for (cells, by), row in sorted(rows.items(), key=lambda item: (int(item[0][0]), item[0][1])):
        others = [other for (size, name), other in rows.items() if size == cells and name in _PETSC]
        ratios = ["", ""]
        if by in _OURS and others:
            fastest = min(others, key=lambda other: float(other["a step"]))
            step = float(row["a step"])
            ratios = [f"{float(fastest[name]) / step:.2f}" for name in ("a step", "of that solve")]
        lines.append([cells, by, *(row.get(name) or "" for name in _COLUMNS), *ratios])
    header = ["cells", "by", *_COLUMNS, "times faster", "than the solve alone"]
    publish("heat", "Steps in time", petsc_described(), table(header, lines))
