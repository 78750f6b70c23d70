"""Solve a system by PETSc, for `petsc`: run by a Python that has petsc4py, which may be another.

Usage: petsc_solve.py SYSTEM.npz METHOD RTOL [RIGHT_HAND_SIDES], with METHOD ``cholmod`` (a Cholesky
factorisation), ``lu`` (SuperLU or PETSc's own) or one of hypre's multigrids under conjugate gradients or
GMRES: ``hypre`` (BoomerAMG's defaults), ``hypre-tuned``, and on whole grids ``pfmg``, ``pfmg-red-black``
and ``smg``. SYSTEM holds ``data, indices, indptr`` of a CSR matrix, ``b``, whether it is ``symmetric``,
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
OPTIONS = {
    "hypre": {"type": "hypre"},
    "hypre-tuned": {"type": "hypre"} | {f"hypre_boomeramg_{k}": v for k, v in _tuned.items()},
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
    size = len(system["b"])
    csr = (system["indptr"].astype(np.int32), system["indices"].astype(np.int32), system["data"])
    start = time.perf_counter()
    if method in ON_GRIDS:
        matrix = on_grid(system["grid"], csr)
    else:
        matrix = PETSc.Mat().createAIJ((size, size), csr=csr, comm=PETSc.COMM_SELF)
    if method == "cholmod":
        matrix.setOption(PETSc.Mat.Option.SPD, True)
    b = PETSc.Vec().createWithArray(system["b"].copy(), comm=PETSc.COMM_SELF)
    x = b.duplicate()
    solver = PETSc.KSP().create(PETSc.COMM_SELF)
    solver.setOperators(matrix)
    preconditioner = solver.getPC()
    if method in OPTIONS:
        solver.setType("cg" if system["symmetric"] else "gmres")
        solver.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
        if not system["symmetric"]:
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
    solver.setTolerances(rtol=rtol, max_it=1000)
    solver.setUp()
    setup = time.perf_counter() - start
    seconds = []
    for _ in range(times):
        x.set(0.0)
        start = time.perf_counter()
        solver.solve(b, x)
        seconds.append(time.perf_counter() - start)
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


def on_grid(shape: np.ndarray, csr: tuple[np.ndarray, ...]) -> Any:
    """Return a matrix of hypre's for grids, of five or nine points.

    PETSc has it for three axes only, so the grid is one layer.
    """
    from petsc4py import PETSc

    stencil = PETSc.DMDA.StencilType
    width = int(np.diff(csr[0]).max())
    nodes = PETSc.DMDA().create(
        dim=3,
        dof=1,
        sizes=(int(shape[1]), int(shape[0]), 1),
        stencil_width=1,
        stencil_type=stencil.STAR if width <= 5 else stencil.BOX,
        comm=PETSc.COMM_SELF,
    )
    nodes.setMatType("hyprestruct")
    nodes.setUp()
    matrix = nodes.createMatrix()
    matrix.setValuesLocalIJV(*csr)
    matrix.assemble()
    return matrix


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
