"""
A capacitor
===========

Two plates, cut out of the domain as holes, hold their potentials. The energy of the field between and around them gives
the capacitance, whose textbook value forgets the field at the rims.
"""

import matplotlib.pyplot as plt
import numpy as np

import mosaicdd as m

h = 1 / 32
length, gap, thick = 4.0, 1.0, 0.25


def plate(middle):
    low, high = middle - thick / 2, middle + thick / 2
    return [(4, low), (4 + length, low), (4 + length, high), (4, high)]


size = 12.0
box = [(0, 0), (size, 0), (size, size), (0, size)]
plates = [plate(6 - (gap + thick) / 2), plate(6 + (gap + thick) / 2)]
domain = m.Domain.from_polygons(box, plates, cells=(384, 384), spacing=h)
sides = {"outer": m.Dirichlet(0.0), "hole1": m.Dirichlet(-0.5), "hole2": m.Dirichlet(0.5)}
solution = m.solve(m.Problem(domain, "laplace", sides=sides))
print(solution.status, f"{solution.iterations} iterations")

# %%
# The capacitance is twice the energy for a voltage of 1; and it is the charge of a plate, which is what flows out of the
# domain into it, for that voltage.

capacitance, charge = 2 * solution.energy(), solution.flow("hole1")
print(f"capacitance {capacitance:.3f}, of the textbook {length / gap:.3f} (times epsilon)")
print(f"charges {charge:.3f} and {solution.flow('hole2'):.3f}")

# %%

figure, ax = plt.subplots(figsize=(6, 5), layout="constrained")
dy, dx = solution.gradient()
strength = np.hypot(dx, dy)
image = ax.imshow(
    np.minimum(strength, 1.5), origin="lower", extent=(0, size, 0, size), cmap="magma"
)
ax.contour(
    solution.x,
    solution.y,
    solution.field,
    levels=np.linspace(-0.45, 0.45, 19),
    colors="white",
    linewidths=0.5,
)
figure.colorbar(image, ax=ax, label="field strength")
