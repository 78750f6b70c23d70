"""March through time with a CHOLMOD factor that is kept, for `bench_heat`: run by a Python that has petsc4py.

Usage: heat_petsc.py SYSTEM.npz. SYSTEM holds ``data, indices, indptr`` of the matrix of a BDF2 step (times
the squared spacing, of the nodes inside), ``cells``, ``spacing``, ``dt`` and ``steps``. Prints one JSON object;
the last field is left in SYSTEM.npz.solution.npy.
"""

import json
import sys
import time

import numpy as np
import petsc4py
from moving_source import moving_source

petsc4py.init(["heat_petsc"])
from petsc4py import PETSc


def main(path: str) -> None:
    """Factorise once, take all steps, and print the seconds."""
    given = dict(np.load(path))
    cells, h, dt, steps = (given[name].item() for name in ("cells", "spacing", "dt", "steps"))
    size, begun = (cells - 1) ** 2, time.perf_counter()
    csr = given["indptr"].astype(np.int32), given["indices"].astype(np.int32), given["data"]
    matrix = PETSc.Mat().createAIJ((size, size), csr=csr, comm=PETSc.COMM_SELF)
    matrix.setOption(PETSc.Mat.Option.SPD, True)
    solver = PETSc.KSP().create(PETSc.COMM_SELF)
    solver.setOperators(matrix)
    solver.setType("preonly")
    solver.getPC().setType("cholesky")
    solver.getPC().setFactorSolverType("cholmod")
    solver.setUp()
    x, b = matrix.createVecs()
    setup = time.perf_counter() - begun
    along = h * np.arange(1, cells)
    u, before, force = (np.zeros((cells - 1, cells - 1)) for _ in range(3))
    seconds = {"source": 0.0, "solve": 0.0}
    begun = time.perf_counter()
    for step in range(steps):
        first, share = step == 0, 2 / 3 if step == 0 else 1.0
        start = time.perf_counter()
        f = moving_source(along, along[:, None], (step + share) * dt)
        seconds["source"] += time.perf_counter() - start
        if first:  # the theta method with 2/3
            np.multiply(u, 1.5 / dt, out=force)
        else:
            np.multiply(u, 2 / dt, out=force)
            before *= 0.5 / dt
            force -= before
        force += f
        force *= h**2
        b.setArray(force.ravel())
        start = time.perf_counter()
        solver.solve(b, x)
        seconds["solve"] += time.perf_counter() - start
        new = x.getArray().reshape(u.shape)
        before, u = u, new.copy() if not first else (new - (1 - share) * u) / share
    total = time.perf_counter() - begun
    np.save(f"{path}.solution.npy", u)
    print(json.dumps({"setup": setup, "march": total, **seconds}))


if __name__ == "__main__":
    main(sys.argv[1])
