"""The solvers to be compared with, by one call each: CHOLMOD, hypre, pyAMG, SuperLU, a sine transform.

CHOLMOD and hypre come through petsc4py, which another Python may have (Debian's ``python3-petsc4py``):
it is run as a process of its own, one thread, and tells its own seconds. Where there is none, its
rows are None, and the tables say so.
"""

import functools
import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyamg
import scipy.sparse
import scipy.sparse.linalg

_PYTHONS = (os.environ.get("PETSC_PYTHON", ""), "/usr/bin/python3", "python3")
_SCRIPT = Path(__file__).with_name("petsc_solve.py")


@dataclass(frozen=True)
class PeerResult:
    """What a peer needed.

    Parameters
    ----------
    solution
        ``(size,)``.
    setup, solve
        Seconds.
    iterations
        None for a direct solver.
    bytes
        That it took beyond the system, where that is known.
    """

    solution: np.ndarray
    setup: float
    solve: float
    iterations: int | None
    bytes: float = float("nan")

    @property
    def seconds(self) -> float:
        """Seconds in all."""
        return self.setup + self.solve


@functools.cache
def petsc_python() -> str | None:
    """Return a Python that has petsc4py, None if there is none."""
    for python in filter(None, _PYTHONS):
        command = [python, "-c", "import petsc4py"]
        try:
            found = subprocess.run(command, capture_output=True, env=_environment(), check=False)
        except OSError:
            continue
        if found.returncode == 0:
            return python
    return None


@functools.cache
def petsc_described() -> str:
    """Say by what CHOLMOD and hypre ran: with the reference BLAS, CHOLMOD is several times slower."""
    python = petsc_python()
    if python is None:
        return "CHOLMOD and hypre: no petsc4py here."
    command = [python, str(_SCRIPT), "--described"]
    found = subprocess.run(command, capture_output=True, text=True, env=_environment(), check=True)
    return f"CHOLMOD and hypre by {found.stdout.strip()}."


def _environment() -> dict[str, str]:
    """Return the environment of that Python: one thread, and where Debian has put PETSc."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    debian = sorted(Path("/usr/lib/petscdir").glob("petsc*/*-real"))
    if debian:
        kept.setdefault("PETSC_DIR", str(debian[-1]))
    return kept | {"OMP_NUM_THREADS": "1"}


def by_petsc(
    matrix: scipy.sparse.csr_array, b: np.ndarray, method: str, rtol: float = 1e-10
) -> PeerResult | None:
    """Solve by ``"cholmod"``, ``"lu"`` or ``"hypre"``; None where there is no petsc4py."""
    python = petsc_python()
    if python is None:
        return None
    symmetric = abs(matrix - matrix.T).max() < 1e-12 * abs(matrix).max()
    if method == "cholmod" and not symmetric:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "system.npz"
        arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
        np.savez(path, b=b, symmetric=symmetric, **arrays)
        command = [python, str(_SCRIPT), str(path), method, str(rtol)]
        ended = subprocess.run(
            command, capture_output=True, text=True, env=_environment(), check=False
        )
        if ended.returncode:
            raise RuntimeError(f"{method}: {ended.stderr.strip().splitlines()[-1]}")
        facts = json.loads(ended.stdout.strip().splitlines()[-1])
        solution = np.load(f"{path}.solution.npy")
    iterations = facts["iterations"] if method == "hypre" else None
    memory = facts["megabytes"] * 2**20
    return PeerResult(solution, facts["setup"], facts["solve"], iterations, memory)


def by_pyamg(matrix: scipy.sparse.csr_array, b: np.ndarray, rtol: float = 1e-10) -> PeerResult:
    """Solve by pyAMG's Ruge-Stueben multigrid with conjugate gradients or GMRES."""
    symmetric = abs(matrix - matrix.T).max() < 1e-12 * abs(matrix).max()
    start = time.perf_counter()
    hierarchy = pyamg.ruge_stuben_solver(matrix)
    setup = time.perf_counter() - start
    steps: list[float] = []
    start = time.perf_counter()
    accelerate = "cg" if symmetric else "fgmres"
    x = hierarchy.solve(b, tol=rtol, maxiter=300, accel=accelerate, residuals=steps)
    return PeerResult(x, setup, time.perf_counter() - start, len(steps) - 1)


def by_superlu(matrix: scipy.sparse.csr_array, b: np.ndarray) -> PeerResult:
    """Solve by SuperLU, where there is no CHOLMOD."""
    start = time.perf_counter()
    factors = scipy.sparse.linalg.splu(matrix.tocsc(), permc_spec="MMD_AT_PLUS_A")
    setup = time.perf_counter() - start
    start = time.perf_counter()
    x = factors.solve(b)
    return PeerResult(x, setup, time.perf_counter() - start, None)
