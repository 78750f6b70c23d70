"""The solvers to be compared with, by one call each: CHOLMOD, hypre's five multigrids, pyAMG, SuperLU.

CHOLMOD and hypre come through petsc4py (`petsc`). Where there is none, their rows are
None, and the tables say so.
"""

import sys
import time
from collections.abc import Iterator

import numpy as np
import petsc
import pyamg
import scipy.sparse
import scipy.sparse.linalg
from petsc import PeerResult

# By the names in tables. On a grid the first three are the fastest where the medium is tame; `tuned` is
# what hypre's manual advises for diffusion.
MULTIGRIDS = {
    "PFMG": "pfmg",
    "PFMG red-black": "pfmg-red-black",
    "SMG": "smg",
    "BoomerAMG": "hypre",
    "BoomerAMG tuned": "hypre-tuned",
}
_REACHED = 10  # times the residual asked for: what rounding may leave


def petsc_described() -> str:
    """Say by what CHOLMOD and hypre ran."""
    return f"CHOLMOD and hypre by {petsc.petsc_described() or 'nothing: no petsc4py here'}."


def by_petsc(
    matrix: scipy.sparse.csr_array,
    b: np.ndarray,
    method: str,
    rtol: float = 1e-10,
    grid: tuple[int, ...] | None = None,
) -> PeerResult | None:
    """Solve by a method of `petsc.solve_by_petsc`; None where there is none."""
    symmetric = _is_symmetric(matrix)
    if petsc.petsc_python() is None or (method == "cholmod" and not symmetric):
        return None
    return petsc.solve_by_petsc(matrix, b, method, symmetric=symmetric, rtol=rtol, grid=grid)


def by_pyamg(matrix: scipy.sparse.csr_array, b: np.ndarray, rtol: float = 1e-10) -> PeerResult:
    """Solve by pyAMG's Ruge-Stueben multigrid with conjugate gradients or GMRES."""
    accelerate = "cg" if _is_symmetric(matrix) else "fgmres"
    start = time.process_time()
    hierarchy = pyamg.ruge_stuben_solver(matrix)
    setup = time.process_time() - start
    steps: list[float] = []
    start = time.process_time()
    x = hierarchy.solve(b, tol=rtol, maxiter=300, accel=accelerate, residuals=steps)
    return PeerResult(x, setup, time.process_time() - start, len(steps) - 1)


def by_superlu(matrix: scipy.sparse.csr_array, b: np.ndarray) -> PeerResult:
    """Solve by SuperLU, where there is no CHOLMOD."""
    start = time.process_time()
    factors = scipy.sparse.linalg.splu(matrix.tocsc(), permc_spec="MMD_AT_PLUS_A")
    setup = time.process_time() - start
    start = time.process_time()
    x = factors.solve(b)
    return PeerResult(x, setup, time.process_time() - start, None)


def residual(matrix: scipy.sparse.csr_array, b: np.ndarray, solution: np.ndarray) -> float:
    """Return the relative residual, as it is and not as a solver's recurrence has it."""
    return float(np.linalg.norm(b - matrix @ solution) / np.linalg.norm(b))


def multigrids(
    matrix: scipy.sparse.csr_array, b: np.ndarray, rtol: float, grid: tuple[int, int]
) -> Iterator[tuple[str, PeerResult | None]]:
    """Solve by each of hypre's multigrids for all nodes of a grid; None where one fails.

    Nothing where there is no petsc4py.
    """
    for label, method in MULTIGRIDS.items():
        try:
            answer = by_petsc(matrix, b, method, rtol, grid)
        except RuntimeError as error:
            print(f"{label} fails: {error}", file=sys.stderr)
            yield label, None
            continue
        if answer is None:
            return
        reached = residual(matrix, b, answer.solution) <= _REACHED * rtol
        yield label, answer if reached else None


def _is_symmetric(matrix: scipy.sparse.csr_array) -> bool:
    return abs(matrix - matrix.T).max() < 1e-12 * abs(matrix).max()
