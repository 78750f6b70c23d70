"""Every equation at one size: the exact local solver, the shipped networks, and the peers.

Usage: bench_equations.py [CELLS] (by default 1024). One thread. Parameters and sources are of another
seed than the training's. Seconds are those of a solve from the problem to the field, set-up included;
errors are relative to the range of the solution, which SuperLU or CHOLMOD gives. hypre's solvers for grids have
five points by PETSc, so with mixed derivatives they precondition by a part of the matrix; a peer that does not come
within ten times of its residual fails. Writes
``benchmarks/equations.md``.
"""

import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from peers import PeerResult, by_petsc, by_pyamg, by_superlu, multigrids, petsc_described
from tables import BENCHMARKS, hardware, table

import mosaicdd
from mosaicdd.local_solvers import exact
from mosaicdd.local_solvers.loading import find_local_solver, model_path, shipped_models
from mosaicdd.problems.discretisation.discrete import DirichletSystem
from mosaicdd.problems.equations import EQUATIONS
from mosaicdd.schwarz import method as scheme
from mosaicdd.storage.model_file import read_model

_SEED = 20_261_121  # of no training
_PER_EQUATION = 2  # draws of the parameters
_RTOL = 1e-8  # of the iterative peers
_REPEATS = 3


def main(cells: int) -> None:
    """Solve, print and write the table."""
    torch.set_num_threads(1)
    rows = []
    for name in EQUATIONS:
        for draw in range(_PER_EQUATION if EQUATIONS[name].draw else 1):
            rows += _rows(name, draw, cells)
    header = ["equation", "parameters", "by", "iterations", "seconds", "relative MAE"]
    text = table(header, rows)
    print(text)
    (BENCHMARKS / "equations.md").write_text(
        f"# Equations, {cells} x {cells}\n\n{hardware()}\n\nBy `python scripts/bench_equations.py "
        f"{cells}`: the problem, the errors and the seconds are told in its head.\n\n{text}\n\n"
        f"{petsc_described()}\n"
    )


def _rows(name: str, draw: int, cells: int) -> list[list[str]]:
    """Return the rows of one draw of an equation's parameters."""
    problem = _problem(name, draw, cells)
    grid = problem.domain.grid()
    field = problem.boundaries(grid)[0].impose(np.zeros(grid.nodes))
    f = problem.source_at(grid, tuple(slice(0, nodes) for nodes in grid.nodes))
    system = DirichletSystem(problem.operator, grid)
    b = system.right_hand_side(field, None if f is None else f[0])
    direct = by_petsc(system.matrix, b, "cholmod") or by_superlu(system.matrix, b)
    truth = field.copy()
    truth[1:-1, 1:-1] = direct.solution.reshape(cells - 1, cells - 1)
    values = ", ".join(f"{k} {v:.3g}" for k, v in problem.fields.items() if k != "f")
    rows = []
    for solver in ("exact", *_networks(problem)):
        seconds, solution = _timed(lambda solver=solver: mosaicdd.solve(problem, solver))
        error = np.abs(np.asarray(solution.field) - truth).mean() / np.ptp(truth)
        label = "mosaicdd, exact local solver" if solver == "exact" else f"mosaicdd, {solver}"
        rows.append([label, str(solution.iterations), f"{seconds:.2f}", f"{error:.1e}"])
    peers: dict[str, PeerResult | None] = {
        "pyAMG to 1e-8": by_pyamg(system.matrix, b, _RTOL),
        **{
            f"{label} to 1e-8": peer
            for label, peer in multigrids(system.matrix, b, _RTOL, (cells - 1, cells - 1))
        },
        "CHOLMOD" if system.operator.self_adjoint else "SuperLU": direct,
    }
    for label, peer in peers.items():
        if peer is None:
            rows.append([label, "fails", "", ""])
        else:
            error = np.abs(peer.solution - direct.solution).mean() / np.ptp(truth)
            shown = "reference" if peer is direct else f"{error:.1e}"
            iterations = "direct" if peer.iterations is None else str(peer.iterations)
            rows.append([label, iterations, f"{peer.seconds:.2f}", shown])
    print(*rows, sep="\n", file=sys.stderr, flush=True)
    return [[name, values, *row] for row in rows]


def _problem(name: str, draw: int, cells: int) -> mosaicdd.Problem:
    """Draw parameters, a source and boundary data."""
    rng = np.random.default_rng([_SEED, draw])
    equation = EQUATIONS[name]
    fields: dict[str, object] = dict(equation.draw(rng)) if equation.draw else {}
    phases = rng.uniform(0, 2 * np.pi, (6, 2))
    waves = rng.uniform(0.2, 2.0, (6, 2))

    def smooth(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return sum(
            np.sin(a * x + p) * np.cos(b * y + q)
            for (a, b), (p, q) in zip(waves, phases, strict=True)
        )

    if equation.source:
        fields["f"] = lambda x, y: 5.0 * smooth(2 * x, 2 * y)
    return mosaicdd.Problem((cells, cells), name, fields, mosaicdd.Dirichlet(smooth))


def _networks(problem: mosaicdd.Problem) -> list[str]:
    """Return the shipped linear models that solve a problem."""
    fitting = []
    for name in shipped_models():
        card, _ = read_model(model_path(name))
        if card.axes != len(problem.domain.cells):
            continue
        try:
            bound = find_local_solver(name).bind(problem, problem.domain.grid())
        except ValueError:
            continue
        if bound.linear and card.pde in (problem.equation.name, "laplace"):
            fitting.append(name)
    return fitting


def _timed(solve: Callable[[], object]) -> tuple[float, object]:
    """Return the median seconds of some solves, each as if it were the first, and the last result."""
    seconds = []
    for _ in range(_REPEATS):
        for kept in (exact._matrix, scheme._measured):
            kept.cache_clear()  # what a process works out once per operator
        start = time.perf_counter()
        result = solve()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds)), result


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["1024"])[0]))
