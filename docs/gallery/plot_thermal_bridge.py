"""
A thermal bridge
================

A balcony slab of concrete goes through an insulated wall. What does it cost, and is the corner inside so cold that it
grows mould? Materials are given per cell, so that they meet on grid lines.
"""

import matplotlib.pyplot as plt
import numpy as np

import mosaicdd as m

h = 0.005  # m
ny, nx = 320, 200  # 1.6 m of wall, 1 m across: 0.6 m of balcony, 0.3 m of wall, a floor inside
inside, outside = 20.0, -5.0  # degrees
conductivity = np.full((ny, nx), np.nan)
y, x = np.meshgrid((np.arange(ny) + 0.5) * h, (np.arange(nx) + 0.5) * h, indexing="ij")
slab = abs(y - 0.8) < 0.1
conductivity[(x > 0.3) & (x < 0.45)] = 0.035  # insulation
conductivity[(x >= 0.45) & (x < 0.6)] = 0.8  # brick
conductivity[slab] = 2.1  # concrete
solid = np.isfinite(conductivity)
wall = m.Domain.from_mask(solid, h, per_cell=True)

# %%
# Air takes and gives heat by Robin's condition, `a du/dn + alpha u = alpha T`. A mask has one outline, whose part on
# the right of the wall is inside: values along it may depend on the place.

alpha = 8.0


def air(x, y):
    return alpha * np.where(x > 0.45, inside, outside)


insulated = {name: m.Neumann(0.0) for name in ("left", "right", "bottom", "top")}
fields = {"a": np.where(solid, conductivity, 1.0)}
problem = m.Problem(wall, "diffusion", fields, insulated | {"outer": m.Robin(alpha, air)})
solution = m.solve(problem)
print(solution.status, f"estimated error {solution.error_estimate:.0e} K")

# %%
# How cold it gets where the wall meets the slab inside, beside the inner face of the undisturbed wall.

resistance = 1 / alpha + 0.15 / 0.035 + 0.15 / 0.8 + 1 / alpha
lost = (inside - outside) / resistance  # W/m^2
print(f"coldest place inside: {np.nanmin(solution.field[:, round(0.6 / h) :]):.1f} degrees")
print(f"undisturbed: {inside - lost / alpha:.1f} degrees, {lost:.2f} W/m^2 are lost")

# %%

figure, ax = plt.subplots(figsize=(5, 6), layout="constrained")
extent = (0, nx * h, 0, ny * h)
image = ax.imshow(solution.field, origin="lower", extent=extent, cmap="RdYlBu_r")
ax.contour(
    solution.x, solution.y, solution.field, levels=range(-4, 20, 2), colors="black", linewidths=0.5
)
figure.colorbar(image, ax=ax, label="degrees")
ax.set(xlabel="m")
