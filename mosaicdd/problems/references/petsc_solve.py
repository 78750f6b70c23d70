"""Solve a system by PETSc, for `petsc`: run by a Python that has petsc4py, which may be another.

Usage: petsc_solve.py SYSTEM.npz METHOD RTOL [RIGHT_HAND_SIDES], with METHOD ``cholmod`` (a Cholesky
factorisation), ``lu`` (SuperLU or PETSc's own) or ``hypre`` (conjugate gradients or GMRES with
BoomerAMG's defaults). SYSTEM holds ``data, indices, indptr`` of a CSR matrix, ``b`` and whether it is
``symmetric``. Prints one JSON object; the last solution is left in SYSTEM.npz.solution.npy.
With ``--described`` it says which PETSc and which BLAS there are.
"""

import json
import re
import sys
import time
from pathlib import Path

import numpy as np


def main(path: str, method: str, rtol: float, times: int) -> None:
    """Set up, solve, and print seconds, iterations and memory."""
    from petsc4py import PETSc

    system = dict(np.load(path))
    before = peak()
    size = len(system["b"])
    csr = (system["indptr"].astype(np.int32), system["indices"].astype(np.int32), system["data"])
    start = time.perf_counter()
    matrix = PETSc.Mat().createAIJ((size, size), csr=csr, comm=PETSc.COMM_SELF)
    if method == "cholmod":
        matrix.setOption(PETSc.Mat.Option.SPD, True)
    b = PETSc.Vec().createWithArray(system["b"].copy(), comm=PETSc.COMM_SELF)
    x = b.duplicate()
    solver = PETSc.KSP().create(PETSc.COMM_SELF)
    solver.setOperators(matrix)
    preconditioner = solver.getPC()
    if method == "hypre":
        solver.setType("cg" if system["symmetric"] else "gmres")
        solver.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
        if not system["symmetric"]:
            solver.setPCSide(PETSc.PC.Side.RIGHT)
        preconditioner.setType("hypre")
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
