"""
The layout of a heat sink
=========================

A plate makes heat everywhere, and only the middle of its left side is cold. Four tenths of it may be of a good
conductor: where should that be, so that the plate is coolest? Densities between nothing and all, whose conductivity is
their cube (SIMP), and the gradient of the mean temperature by every one of them from one adjoint solve.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.ndimage

import mosaicdd as m

ny, nx, share, radius, steps = 256, 512, 0.4, 4.0, 30
sides = {name: m.Neumann(0.0) for name in ("left", "right", "bottom", "top")}
sides["left[0.2:0.3]"] = m.Dirichlet(0.0)
plate = m.Problem(m.Domain((ny, nx), 1 / nx), "diffusion", {"f": 1.0}, sides)
weights = np.ones((ny + 1, nx + 1))
for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
    weights[edge] /= 2
weights /= weights.sum()


def conductivity(density):
    return 1e-2 + (1 - 1e-2) * density**3


def smooth(values):
    """Average over neighbours, so that branches have a thickness; its own transpose."""
    return scipy.ndimage.gaussian_filter(values, radius, mode="reflect")


# %%
# Each step: a solve, its adjoint, and densities that grow where that cools most, with the share kept by bisection.

design = np.full((ny, nx), share)
means = []
for _ in range(steps):
    density = smooth(design)
    with m.Solver(plate.with_fields(a=conductivity(density)), "exact", rtol=1e-7) as solver:
        solution = solver()
        means.append((weights * solution.field).sum())
        by = m.adjoint(solution, weights, solver=solver)["a"]
    slope = np.minimum(smooth(by * (1 - 1e-2) * 3 * density**2), -1e-12)
    low, high = 1e-12, 1e6 * -slope.min()
    while high > low * (1 + 1e-6):
        price = np.sqrt(low * high)
        grown = design * np.sqrt(-slope / price)
        new = np.clip(grown, np.maximum(design - 0.2, 0.0), np.minimum(design + 0.2, 1.0))
        low, high = (price, high) if new.mean() > share else (low, price)
    design = new
print(solution.status, f"{2 * steps} solves")
print(f"mean temperature {means[0]:.3f} with all spread evenly, {means[-1]:.3f} by the layout")

# %%

figure, axes = plt.subplots(1, 2, figsize=(10, 2.9), layout="constrained")
axes[0].imshow(smooth(design), origin="lower", cmap="Greys")
axes[0].set(title="conductor")
image = axes[1].imshow(solution.field, origin="lower", cmap="inferno")
axes[1].set(title="temperature")
figure.colorbar(image, ax=axes[1])
for ax in axes:
    ax.set(xticks=[], yticks=[])
