"""
A balcony in space
==================

The corner of two outer walls, and a floor slab that goes through one of them to a balcony: case 3 of ISO 10211, the standard
for thermal bridges. It says how much heat the two rooms lose, 46.09 W and 13.89 W, to 1 %, and how cold their corners
are, 11.32 and 11.11 degrees, to 0.1.
"""

import matplotlib.pyplot as plt
import numpy as np

import mosaicdd as m

# %%
# The parts by their conductivities and ends along x, y and z, in cm, from the corner of the box around them. What no part
# is in is air, and no material.

cell = np.array([5, 2.5, 5])  # cm, along x, y and z
counts = (26, 76, 43)
x, y, z = np.meshgrid(
    *[(np.arange(n) + 0.5) * side for n, side in zip(counts, cell, strict=True)], indexing="ij"
)
k = np.zeros(counts)


def put(conductivity, x_ends, y_ends, z_ends=(0, 215)):
    ends = zip((x, y, z), (x_ends, y_ends, z_ends), strict=True)
    k[np.logical_and.reduce([(low < at) & (at < high) for at, (low, high) in ends])] = conductivity


put(1.0, (0, 10), (60, 190)), put(1.0, (0, 130), (60, 70))  # outer leaf
put(0.04, (10, 15), (70, 190)), put(0.04, (10, 130), (70, 75))  # insulation
put(0.7, (15, 30), (75, 190)), put(0.7, (15, 130), (75, 90))  # inner leaf
put(2.5, (15, 130), (0, 190), (100, 115))  # the slab, to the balcony
put(1.0, (30, 130), (90, 190), (115, 120))  # screed
k = k.transpose()  # arrays lie in the order (z, y, x)
building = m.Domain.from_mask(k > 0, dict(zip("xyz", cell / 100, strict=True)))

# %%
# Faces in the rooms are named by a formula; all others that are exposed are outside. Where the building is cut no heat flows.


def air(temperature, resistance):
    return m.Robin(1 / resistance, temperature / resistance)


lower = "outline[(x > 0.29) & (y > 0.89) & (z < 1.01)]"
upper = "outline[(x > 0.29) & (y > 0.89) & (z > 1.19)]"
sides = dict.fromkeys(["right", "top", "bottom", "back", "front"], m.Neumann(0.0))
sides |= {"left": air(0, 0.05), lower: air(20, 0.2), upper: air(15, 0.2), "outline": air(0, 0.05)}
solution = m.solve(m.Problem(building, "diffusion", {"a": k}, sides))
print(solution)
print(f"the rooms lose {-solution.flow(lower):.2f} W and {-solution.flow(upper):.2f} W")
coldest = solution.at([[0.3, 0.9, 1.0], [0.3, 0.9, 1.2]])
print("their corners have {:.2f} and {:.2f} degrees".format(*coldest))

# %%
# Two planes through the slab: it takes the cold in.

figure, axes = plt.subplots(1, 2, figsize=(9, 4.5), layout="constrained")
for ax, plane, extent, names in (
    (axes[0], solution.field[:, :, 16], (0, 1.9, 0, 2.15), ("y, m", "z, m")),
    (axes[1], solution.field[21], (0, 1.3, 0, 1.9), ("x, m", "y, m")),
):
    ax.set_facecolor("lightgray")
    image = ax.imshow(plane, origin="lower", extent=extent, cmap="RdYlBu_r", vmin=0, vmax=20)
    ax.set(xlabel=names[0], ylabel=names[1])
figure.colorbar(image, ax=axes, label="degrees")
