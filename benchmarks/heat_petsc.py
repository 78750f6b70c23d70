"""March through time with a solver of PETSc that is set up once, for `heat`: run by a Python that has petsc4py.

Usage: heat_petsc.py SYSTEM.npz METHOD RTOL, with a METHOD of `petsc_solve`. SYSTEM holds ``data, indices,
indptr`` of the matrix of a BDF2 step (times the squared spacing, of the nodes inside), their ``grid``, ``cells``,
``spacing``, ``dt`` and ``steps``. A multigrid begins each step where the last two point to, and ends at RTOL of the
right-hand side. Prints one JSON object; the last field is left in SYSTEM.npz.solution.npy.
"""

import json
import sys
import time

import numpy as np
import petsc4py
from moving_source import moving_source

petsc4py.init(["heat_petsc"])
from petsc_solve import OPTIONS, prepared


def main(path: str, method: str, rtol: float) -> None:
    """Set up once, take all steps, and print the seconds."""
    data = dict(np.load(path))
    cells, h, dt, steps = (data[name].item() for name in ("cells", "spacing", "dt", "steps"))
    begun = time.perf_counter()
    solver, matrix = prepared(data, method, symmetric=True)
    solver.setTolerances(rtol=rtol, max_it=1000)
    iterative = method in OPTIONS
    solver.setInitialGuessNonzero(iterative)
    x, b = matrix.createVecs()
    setup = time.perf_counter() - begun
    along = h * np.arange(1, cells)
    u, before, force = (np.zeros((cells - 1, cells - 1)) for _ in range(3))
    seconds = {"source": 0.0, "solve": 0.0}
    iterations = 0
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
            if iterative:
                start = time.perf_counter()
                guess = 2 * u - before
                seconds["solve"] += time.perf_counter() - start
            before *= 0.5 / dt
            force -= before
        force += f
        force *= h**2
        b.setArray(force.ravel())
        start = time.perf_counter()
        if iterative:
            x.setArray((u if first else guess).ravel())
        solver.solve(b, x)
        iterations += solver.getIterationNumber()
        seconds["solve"] += time.perf_counter() - start
        new = x.getArray().reshape(u.shape)
        before, u = u, new.copy() if not first else (new - (1 - share) * u) / share
    total = time.perf_counter() - begun
    np.save(f"{path}.solution.npy", u)
    print(json.dumps({"setup": setup, "march": total, "iterations": iterations, **seconds}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
