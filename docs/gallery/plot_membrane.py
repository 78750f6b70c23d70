"""
A membrane with a rib
=====================

A drum is stretched over a ring, held by a rib inside, and loaded by its own weight. The outline is a signed distance, of
second order: the same answer on two grids says how good it is.
"""

import matplotlib.pyplot as plt
import numpy as np

import mosaicdd as m

# A disk of radius 0.9 around (1, 1) without a rib, a stadium of length 0.6: distances join by `maximum`.
distance = "maximum(hypot(x-1,y-1)-0.9, 0.05-hypot(maximum(abs(x-0.7)-0.3,0), y-1))"
solutions = []
for cells in (128, 256, 512):
    domain = m.Domain.from_distance(distance, (cells, cells), 2 / cells)
    solutions.append(m.solve(m.Problem(domain, "poisson", {"f": -1.0}, m.Dirichlet(0.0))))
deepest = [np.nanmin(solution.field) for solution in solutions]
print(solutions[-1].status)
print("deepest:", ", ".join(f"{value:.6f}" for value in deepest))
print(
    f"the change falls by a factor of {(deepest[1] - deepest[0]) / (deepest[2] - deepest[1]):.1f}"
)

# %%

figure, ax = plt.subplots(figsize=(5.5, 4.5), layout="constrained")
image = ax.imshow(solutions[-1].field, origin="lower", extent=(0, 2, 0, 2), cmap="viridis")
ax.contour(
    solutions[-1].x, solutions[-1].y, solutions[-1].field, levels=10, colors="white", linewidths=0.5
)
figure.colorbar(image, ax=ax, label="deflection")
