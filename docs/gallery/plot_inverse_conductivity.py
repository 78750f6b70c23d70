"""
A conductivity from temperatures
================================

A plate is heated from within and held cold at its sides. Temperatures are measured at 200 points: where does the plate
conduct well, where badly? The gradient of the misfit costs one more solve, whatever the number of unknowns.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize

import mosaicdd as m

n, coarse = 256, 7
rng = np.random.default_rng(0)
plate = m.Problem((n, n), "diffusion", {"f": "1 + x"}, m.Dirichlet(0.0))


def spread(unknowns):
    """Return the conductivity at all nodes from numbers at a few, whose smooth mean is its logarithm."""
    return np.exp(np.log(3.0) + weights @ unknowns.reshape(coarse, coarse) @ weights.T)


at = np.linspace(0, coarse - 1, n + 1)
weights = np.exp(-((at[:, None] - np.arange(coarse)) ** 2) / 2)

# %%
# The truth varies by a factor of ten. Measured are its temperatures.

truth = rng.standard_normal((coarse, coarse))
truth *= np.log(10) / np.ptp(np.log(spread(truth)))
points = tuple(rng.integers(4, n - 3, (2, 200)))
measured = m.solve(plate.with_fields(a=spread(truth)), rtol=1e-9).field[points]

# %%
# The misfit, of logarithms, which are nearly linear in each other, and its gradient: by the adjoint at all nodes, from there to the few by the chain rule.

solves = 0


def misfit(unknowns):
    global solves
    a = spread(unknowns)
    with m.Solver(plate.with_fields(a=a), "exact", rtol=1e-8) as solver:
        solution = solver()
        off = np.log(solution.field[points] / measured)
        slope = np.zeros((n + 1, n + 1))
        np.add.at(slope, points, 2 * off / solution.field[points])
        by = m.adjoint(solution, slope, solver=solver)["a"] * a
    solves += 2
    return (off**2).sum(), (weights.T @ by @ weights).ravel()


found = scipy.optimize.minimize(
    misfit, np.zeros(coarse**2), jac=True, method="L-BFGS-B", options={"maxfun": 28, "maxcor": 30}
)
a, right = spread(found.x), spread(truth)
error = np.linalg.norm(a - right) / np.linalg.norm(right)
print(f"converged solves: {solves}, misfit {found.fun:.1e}")
print(
    f"conductivity off by {100 * error:.1f} %, at the begin {100 * np.linalg.norm(3 - right) / np.linalg.norm(right):.0f} %"
)

# %%

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for ax, values, title in ((axes[0], right, "conductivity"), (axes[1], a, "found")):
    image = ax.imshow(values, origin="lower", vmin=right.min(), vmax=right.max())
    ax.plot(points[1], points[0], ".", color="white", markersize=2)
    ax.set(title=title, xticks=[], yticks=[])
figure.colorbar(image, ax=axes)
