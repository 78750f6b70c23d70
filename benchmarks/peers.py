"""The solvers to be compared with, by one call each: CHOLMOD, hypre's five multigrids, pyAMG, SuperLU.

CHOLMOD and hypre come through petsc4py. PETSc is run as a process of its own, with one thread, which tells its own
seconds (`petsc_solve`): by this Python where it has petsc4py, by the one that ``PETSC_PYTHON`` names, or by the system's
(Debian's ``python3-petsc4py``). Where there is none, their rows are None, and the tables say so.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyamg
import scipy.sparse
import scipy.sparse.linalg
from common import processor_timed
from petsc_solve import ON_GRIDS

_SCRIPT = Path(__file__).with_name("petsc_solve.py")
_SYSTEM = ("/usr/bin/python3", "python3")
# Set by launchers for their own ranks, of which PETSc's MPI must not take itself for one.
_OF_LAUNCHERS = ("PMI_", "PMI2_", "PMIX_", "OMPI_", "PRTE_", "HYDRA_", "MPI_", "SLURM_")
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


@dataclass(frozen=True)
class PeerResult:
    """What another solver found, and what it needed."""

    solution: np.ndarray  # ``(size,)``
    # setup, solve: seconds, without those for handing the system over
    setup: float
    solve: float
    iterations: int | None  # None for a direct solver
    bytes: float = float("nan")  # that it took beyond the system, where that is known

    @property
    def seconds(self) -> float:
        """Seconds in all."""
        return self.setup + self.solve


def petsc_described() -> str:
    """Say by what CHOLMOD and hypre ran."""
    return f"CHOLMOD and hypre by {_versions() or 'nothing: no petsc4py here'}."


def by_petsc(
    matrix: scipy.sparse.csr_array,
    b: np.ndarray,
    method: str,
    rtol: float = 1e-10,
    grid: tuple[int, ...] | None = None,
) -> PeerResult | None:
    """Solve by a method of `solve_by_petsc`; None where there is none."""
    symmetric = _is_symmetric(matrix)
    if petsc_python() is None or (method == "cholmod" and not symmetric):
        return None
    return solve_by_petsc(matrix, b, method, symmetric=symmetric, rtol=rtol, grid=grid)


def by_pyamg(matrix: scipy.sparse.csr_array, b: np.ndarray, rtol: float = 1e-10) -> PeerResult:
    """Solve by pyAMG's Ruge-Stueben multigrid with conjugate gradients or GMRES."""
    accelerate = "cg" if _is_symmetric(matrix) else "fgmres"
    hierarchy, setup = processor_timed(pyamg.ruge_stuben_solver, matrix)
    steps: list[float] = []
    how = {"tol": rtol, "maxiter": 300, "accel": accelerate, "residuals": steps}
    x, seconds = processor_timed(lambda: hierarchy.solve(b, **how))
    return PeerResult(x, setup, seconds, len(steps) - 1)


def by_superlu(matrix: scipy.sparse.csr_array, b: np.ndarray) -> PeerResult:
    """Solve by SuperLU, where there is no CHOLMOD."""
    order = {"permc_spec": "MMD_AT_PLUS_A"}
    factors, setup = processor_timed(lambda: scipy.sparse.linalg.splu(matrix.tocsc(), **order))
    x, seconds = processor_timed(factors.solve, b)
    return PeerResult(x, setup, seconds, None)


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


@functools.cache
def petsc_python() -> str | None:
    """Return a Python that has petsc4py, None if there is none."""
    for python in (sys.executable, os.environ.get("PETSC_PYTHON"), *_SYSTEM):
        if python and _run(python, "-c", "import petsc4py"):
            return python
    return None


@functools.cache
def _versions() -> str | None:
    """Name the versions of PETSc and of its BLAS; None if there is none.

    With the reference BLAS, CHOLMOD is several times slower than with a good one.
    """
    python = petsc_python()
    done = python and _run(python, str(_SCRIPT), "--described")
    return done.stdout.strip() if done else None


def solve_by_petsc(
    matrix: scipy.sparse.csr_array,
    b: np.ndarray,
    method: str,
    *,
    symmetric: bool,
    rtol: float = 1e-10,
    grid: tuple[int, ...] | None = None,
) -> PeerResult:
    """Solve ``A x = b``.

    `RuntimeError` if there is no petsc4py, or PETSc fails, as where a matrix is too large for the memory.
    `ValueError` if the method needs a ``grid``.

    Parameters
    ----------
    method
        ``"cholmod"`` (a Cholesky factorisation, of symmetric matrices), ``"lu"``, or one of hypre's
        multigrids under conjugate gradients, under GMRES where not ``symmetric``: ``"hypre"``
        (BoomerAMG's defaults), ``"hypre-tuned"``, ``"hypre-in-space"``, and for unknowns at all nodes of a grid ``"pfmg"``,
        ``"pfmg-red-black"``, ``"smg"``.
    rtol
        Relative residual at which the iterations end.
    grid
        ``(rows, columns)`` of the nodes that are unknowns, where they are all nodes of a rectangle; of a box
        ``(planes, rows, columns)``.
    """
    python = petsc_python()
    if python is None:
        raise RuntimeError(f"{method} needs petsc4py, which no Python here has")
    if method in ON_GRIDS and grid is None:
        raise ValueError(
            f"{method} solves for all nodes of a rectangle, here only some of them are unknowns"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "system.npz"
        arrays = {name: getattr(matrix, name) for name in ("data", "indices", "indptr")}
        np.savez(path, b=b, symmetric=symmetric, grid=grid or (), **arrays)
        command = [python, str(_SCRIPT), str(path), method, str(rtol)]
        ended = subprocess.run(
            command, capture_output=True, text=True, env=environment_of(python), check=False
        )
        if ended.returncode:
            lines = ended.stderr.strip().splitlines() or [f"ended with {ended.returncode}"]
            raise RuntimeError(f"{method}: {lines[-1]}")
        facts = json.loads(ended.stdout.strip().splitlines()[-1])
        solution = np.load(f"{path}.solution.npy")
    iterations = None if method in ("cholmod", "lu") else facts["iterations"]
    memory = facts["megabytes"] * 2**20
    return PeerResult(solution, facts["setup"], facts["solve"], iterations, memory)


def _run(python: str, *arguments: str) -> subprocess.CompletedProcess | None:
    """Run a Python; None if there is none, or it fails."""
    command, environment = [python, *arguments], environment_of(python)
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    except OSError:
        return None
    return None if done.returncode else done


def environment_of(python: str) -> dict[str, str]:
    """Return the environment of a Python: one thread, no launcher's, and where Debian has put PETSc."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_OF_LAUNCHERS)}
    if python != sys.executable:  # whose paths are of this one's packages
        kept = {k: v for k, v in kept.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    debian = sorted(Path("/usr/lib/petscdir").glob("petsc*/*-real"))
    if debian:
        kept.setdefault("PETSC_DIR", str(debian[-1]))
    return kept | {"OMP_NUM_THREADS": "1"}
