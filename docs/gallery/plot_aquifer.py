"""
An aquifer with wells and a river
=================================

Groundwater flows through sand and gravel whose transmissivity varies by a factor of a thousand. A river holds the level
on the left, a lake on a part of the right; rain comes from above, and two wells take it out again. Do the wells draw
water from the river?
"""

import matplotlib.pyplot as plt

import mosaicdd as m

ny, nx, h = 256, 384, 10.0  # m
wells = {(400.0, 1500.0): 0.040, (2605.0, 903.0): 0.015}  # (x, y), on or between nodes: m^3/s
median = 2e-3  # of the transmissivity, in m^2/s, by which all is divided

rain = 300e-3 / (365 * 86400) / median  # 300 mm a year, in m/s
pumping = m.Wells([(place, -taken / median) for place, taken in wells.items()], rain)
# The logarithm of the transmissivity is a Gaussian process of length 200 m.
transmissivity = "lognormal:seed=3,length=200,contrast=1000"


def levels(f):
    return m.solve(
        m.Problem(
            m.Domain((ny, nx), h),
            "diffusion",
            {"a": transmissivity, "f": f},
            {
                "left": m.Dirichlet(0.0),
                "right[600:1900]": m.Dirichlet(2.0),
                "right[0:600]": m.Neumann(0.0),
                "right[1900:2560]": m.Neumann(0.0),
                "bottom": m.Neumann(0.0),
                "top": m.Neumann(0.0),
            },
        )
    )


before, pumped = levels(rain), levels(pumping)
print(before.status, pumped.status, f"{pumped.iterations} iterations")

# %%
# Where the level beside the river is below that of the river, water flows out of it.

for name, solution in (("without wells", before), ("with wells", pumped)):
    falls = solution.field[:, 1] < 0
    into = 1000 * median * solution.flow("left")  # litres per second
    print(
        f"{name}: {into:.1f} l/s flow into the river, which loses along {100 * falls.mean():.0f} % of its length"
    )

# %%

extent = (0, nx * h / 1000, 0, ny * h / 1000)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for ax, values, title in (
    (axes[0], pumped.field, "level, m"),
    (axes[1], before.field - pumped.field, "drawdown, m"),
):
    image = ax.imshow(
        values, origin="lower", extent=extent, cmap="Blues" if ax is axes[0] else "Reds"
    )
    ax.contour(values, levels=12, extent=extent, colors="black", linewidths=0.5)
    for x, y in wells:
        ax.plot(x / 1000, y / 1000, "o", mfc="none", mec="black")
    ax.set(title=title, xlabel="km")
    figure.colorbar(image, ax=ax)
