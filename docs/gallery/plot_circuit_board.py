"""
A circuit board
===============

Two chips heat a board. Copper traces lead the heat away, the air takes it up: per area what it takes is proportional
to how much warmer the board is. How hot do the chips get, and what do the traces do for them?
"""

import matplotlib.pyplot as plt
import numpy as np

import mosaicdd as m

ny, nx, h = 256, 384, 0.25  # a board of 96 mm by 64 mm, cells of a quarter of a millimetre
y, x = ((np.arange(n) + 0.5) * h for n in (ny, nx))
x, y = np.meshgrid(x, y)  # middles of the cells

# Thickness times conductivity, W/K: 1.6 mm of FR4, and 35 um of copper where a trace is.
board, copper = 1.6e-3 * 0.3, 35e-6 * 400
traces = (abs(y - 32) < 3) & (x > 10) & (x < 86) | (abs(x - 48) < 3) & (y > 8) & (y < 56)
chips = [((20, 30), (26, 38), 0.6), ((60, 74), (12, 20), 0.4)]  # mm, mm, W

power = np.zeros((ny + 1, nx + 1))  # W/mm^2 at the nodes
yn, xn = np.meshgrid(np.arange(ny + 1) * h, np.arange(nx + 1) * h, indexing="ij")
for (x0, x1), (y0, y1), watts in chips:
    on_chip = (xn >= x0) & (xn <= x1) & (yn >= y0) & (yn <= y1)
    power[on_chip] = watts / (on_chip.sum() * h**2)

to_air = 2 * 10e-6  # W/(K mm^2), from both faces

# %%
# No side lets heat through (`Neumann(0)`), so all of it goes into the air.

fields = {}
for name, medium in (("bare", np.full((ny, nx), board)), ("traces", board + copper * traces)):
    problem = m.Problem(
        m.Domain((ny, nx), h), "diffusion", {"a": medium, "c": to_air, "f": power}, m.Neumann(0.0)
    )
    fields[name] = m.solve(problem)
    hottest = fields[name].field.max()
    print(f"{name}: at most {hottest:.1f} K above the air, {fields[name].status}")

# %%

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
top = fields["bare"].field.max()
for ax, (name, solution) in zip(axes, fields.items(), strict=True):
    image = ax.imshow(
        solution.field, origin="lower", extent=(0, 96, 0, 64), cmap="inferno", vmin=0, vmax=top
    )
    ax.set(title=name, xlabel="mm")
axes[1].contour(x, y, traces, levels=[0.5], colors="white", linewidths=0.6)
figure.colorbar(image, ax=axes, label="K above the air")
