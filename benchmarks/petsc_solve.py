"""Solve a system by PETSc, for `petsc`: run by a Python that has petsc4py, which may be another.

Usage: petsc_solve.py SYSTEM.npz METHOD RTOL [RIGHT_HAND_SIDES], with METHOD ``cholmod`` (a Cholesky
factorisation), ``lu`` (SuperLU or PETSc's own) or one of hypre's multigrids under conjugate gradients or
GMRES: ``hypre`` (BoomerAMG's defaults), ``hypre-tuned``, ``hypre-in-space`` (the same with the threshold of the manual for boxes), and on whole grids ``pfmg``, ``pfmg-red-black``
and ``smg``, which PETSc has for five points, in space seven; of nine they get those, and precondition the whole. SYSTEM holds ``data, indices, indptr`` of a CSR matrix, ``b``, whether it is ``symmetric``,
and for the last three the ``grid`` of its unknowns. Prints one JSON object; the last solution is left in
SYSTEM.npz.solution.npy. With ``--described`` it says which PETSc and which BLAS there are.
"""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

# What PETSc is told beside its defaults; `_tuned` is what hypre's manual advises for diffusion.
_tuned = {"coarsen_type": "HMIS", "interp_type": "ext+i", "P_max": "4", "agg_nl": "1"}
_in_space = _tuned | {"strong_threshold": "0.5"}
OPTIONS = {
    "hypre": {"type": "hypre"},
    "hypre-tuned": {"type": "hypre"} | {f"hypre_boomeramg_{k}": v for k, v in _tuned.items()},
    "hypre-in-space": {"type": "hypre"} | {f"hypre_boomeramg_{k}": v for k, v in _in_space.items()},
    "pfmg": {"type": "pfmg", "pfmg_relax_type": "Weighted-Jacobi"},
    "pfmg-red-black": {"type": "pfmg", "pfmg_relax_type": "symmetric-Red/Black-Gauss-Seidel"},
    "smg": {"type": "smg"},
}
ON_GRIDS = ("pfmg", "pfmg-red-black", "smg")


def main(path: str, method: str, rtol: float, times: int) -> None:
    """Set up, solve, and print seconds, iterations and memory."""
    from petsc4py import PETSc

    system = dict(np.load(path))
    before = peak()
    b = PETSc.Vec().createWithArray(system["b"].copy(), comm=PETSc.COMM_SELF)
    x = b.duplicate()
    start = time.process_time()
    solver, matrix = prepared(system, method, bool(system["symmetric"]))
    solver.setTolerances(rtol=rtol, max_it=1000)
    setup = time.process_time() - start
    seconds = []
    for _ in range(times):
        x.set(0.0)
        start = time.process_time()
        solver.solve(b, x)
        seconds.append(time.process_time() - start)
    residual = b.duplicate()
    matrix.mult(x, residual)
    residual.aypx(-1.0, b)
    np.save(f"{path}.solution.npy", x.getArray())
    facts = {
        "setup": setup,
        "solve": seconds[0],
        "again": seconds[-1],
        "iterations": solver.getIterationNumber(),
        "residual": residual.norm() / (b.norm() or 1.0),
        "megabytes": (peak() - before) / 1024,
    }
    sys.stdout.write(json.dumps(facts) + "\n")


def prepared(system: dict[str, np.ndarray], method: str, symmetric: bool) -> tuple[Any, Any]:
    """Return a solver that is set up, and its matrix; the matrix and its grid are in ``system``."""
    from petsc4py import PETSc

    csr = (system["indptr"].astype(np.int32), system["indices"].astype(np.int32), system["data"])
    grid, nine = system["grid"], np.diff(csr[0]).max() > 1 + 2 * len(system["grid"])
    solver = PETSc.KSP().create(PETSc.COMM_SELF)
    if method in ON_GRIDS and not nine:
        matrix = on_grid(grid, csr)
        solver.setOperators(matrix)
    else:
        size = len(csr[0]) - 1
        matrix = PETSc.Mat().createAIJ((size, size), csr=csr, comm=PETSc.COMM_SELF)
        if method == "cholmod":
            matrix.setOption(PETSc.Mat.Option.SPD, True)
        near = on_grid(grid, five_points(csr, int(grid[1]))) if method in ON_GRIDS else matrix
        solver.setOperators(matrix, near)
    preconditioner = solver.getPC()
    if method in OPTIONS:
        solver.setType("cg" if symmetric else "gmres")
        solver.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
        if not symmetric:
            solver.setPCSide(PETSc.PC.Side.RIGHT)
        options = PETSc.Options()
        for name, value in OPTIONS[method].items():
            options[f"pc_{name}"] = value
        solver.setFromOptions()
    else:
        solver.setType("preonly")
        preconditioner.setType("cholesky" if method == "cholmod" else "lu")
        if method == "cholmod":
            preconditioner.setFactorSolverType("cholmod")
    solver.setUp()
    return solver, matrix


def on_grid(shape: np.ndarray, csr: tuple[np.ndarray, ...]) -> Any:
    """Return a matrix of hypre's for grids.

    PETSc has it for three axes and stars of points only, so in the plane the grid is one layer.
    """
    from petsc4py import PETSc

    nodes = PETSc.DMDA().create(
        dim=3,
        dof=1,
        sizes=(*map(int, shape[::-1]), 1)[:3],
        stencil_width=1,
        stencil_type=PETSc.DMDA.StencilType.STAR,
        comm=PETSc.COMM_SELF,
    )
    nodes.setMatType("hyprestruct")
    nodes.setUp()
    matrix = nodes.createMatrix()
    matrix.setValuesLocalIJV(*csr)
    matrix.assemble()
    return matrix


def five_points(csr: tuple[np.ndarray, ...], columns: int) -> tuple[np.ndarray, ...]:
    """Return a nine-point matrix without its couplings of diagonal neighbours, which go to the diagonal.

    It has the same sums over rows, and so is near enough for a preconditioner.
    """
    starts, indices, data = csr
    rows = np.repeat(np.arange(len(starts) - 1, dtype=indices.dtype), np.diff(starts))
    far = ~np.isin(abs(indices - rows), (0, 1, columns))
    added = np.bincount(rows[far], data[far], len(starts) - 1)
    data = data + np.where(indices == rows, added[rows], 0.0)
    kept = np.bincount(rows[~far], minlength=len(starts) - 1)
    ends = np.concatenate([[0], np.cumsum(kept)]).astype(starts.dtype)
    return ends, indices[~far], data[~far]


def peak() -> int:
    """Return the most kB that this process has held, without what its parent had."""
    return int(re.findall(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[0])


def described() -> str:
    """Name the versions of PETSc and the BLAS that this process has loaded."""
    from petsc4py import PETSc

    version = ".".join(map(str, PETSc.Sys.getVersion()))
    loaded = set(re.findall(r"lib(?:\w*blas\w*|mkl_rt|blis)", Path("/proc/self/maps").read_text()))
    blas = " and ".join(sorted(loaded - {"libblas"} or loaded)) or "a BLAS of its own"
    return f"PETSc {version} with {blas}"


if __name__ == "__main__":
    import petsc4py

    petsc4py.init(["petsc_solve"])
    if sys.argv[1] == "--described":
        sys.stdout.write(described() + "\n")
    else:
        main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int((sys.argv[4:] or ["1"])[0]))
