"""
A cup of coffee
===============

A cup cools down in time: coffee, china and the table under it conduct heat at different rates, and the air takes it from
all that it touches. When can one drink?
"""

import matplotlib.pyplot as plt
import numpy as np

import mosaicdd as m

h = 0.1  # cm
ny, nx = 112, 128
y, x = np.meshgrid((np.arange(ny) + 0.5) * h, (np.arange(nx) + 0.5) * h, indexing="ij")
table = y < 2
cup = (abs(x - 6.4) < 4) & (y > 2) & (y < 10)
coffee = (abs(x - 6.4) < 3.5) & (y > 2.6) & (y < 9)
solid = table | cup & ((abs(x - 6.4) > 3.5) | (y < 2.6)) | coffee

# Diffusivities in cm^2/min; that of the coffee, which moves, is large. The heat capacity of all is alike.
a = np.select([coffee, cup, table], [5.0, 0.5, 0.1], 1.0)
yn, xn = np.meshgrid(np.arange(ny + 1) * h, np.arange(nx + 1) * h, indexing="ij")
hot = (abs(xn - 6.4) <= 3.5) & (yn >= 2.6) & (yn <= 9)
start = np.where(hot, 70.0, 0.0)  # above the air

domain = m.Domain.from_mask(solid, h, per_cell=True)
to_air = m.Robin(0.05, 0.0)
sides = {name: m.Neumann(0.0) for name in ("left", "right", "bottom")} | {"outer": to_air}
series = m.march(
    m.Problem(domain, "heat", {"a": a}, sides), initial=start, dt=0.5, steps=80, every=8
)
print(series.status, f"{len(series.times)} of the fields are kept")

# %%

middle = (round(5.5 / h), round(6.4 / h))
temperatures = [frame[middle] + 20 for frame in series]
cool = next(t for t, value in zip(series.times, temperatures, strict=True) if value < 60)
print(f"below 60 degrees after {cool:g} minutes")

# %%

figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
for ax, number in zip(axes, (0, 2, len(series.times) - 1), strict=True):
    image = ax.imshow(
        series[number] + 20,
        origin="lower",
        extent=(0, nx * h, 0, ny * h),
        cmap="inferno",
        vmin=20,
        vmax=90,
    )
    ax.set_title(f"after {series.times[number]:g} minutes")
figure.colorbar(image, ax=axes, label="degrees")
