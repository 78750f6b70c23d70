"""
A pumping test, beside Theis's formula
======================================

A well takes 20 litres per second out of a confined aquifer, and in observation wells the level falls: slowly where much
water is stored. How fast tells how much the aquifer conducts and stores; Theis's formula of 1935 has it for one that is
the same everywhere and has no end.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import exp1

import mosaicdd as m

conducts, stores = 5e-3, 1e-3  # transmissivity in m^2/s, storage coefficient
taken = 0.020  # m^3/s
dx, dy = 16.0, 12.0  # m: cells are no squares
nx, ny = 240, 240
row, column = ny // 2, nx // 2  # of the well

well = m.Wells([((column * dx, row * dy), taken)])
aquifer = m.Problem(
    m.Domain((ny, nx), {"x": dx, "y": dy}), "heat", {"a": conducts, "s": stores, "f": well}
)
day = 86400.0
series = m.march(aquifer, 0.0, dt=day / 24, steps=24, tolerance=5e-3)
print(f"{series.status}, {len(series.steps['iterations'])} steps")

# %%
# The drawdown in three observation wells, 48, 160 and 300 m away.

hours = np.array(series.times[1:]) / 3600
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for up, right in ((4, 0), (0, 10), (15, 15)):
    far = np.hypot(up * dy, right * dx)
    fallen = np.array([field[row + up, column + right] for field in list(series)[1:]])
    u = far**2 * stores / (4 * conducts * hours * 3600)
    theis = taken / (4 * np.pi * conducts) * exp1(u)
    off = abs(fallen - theis).max() / theis.max()
    print(f"{far:.0f} m away: {fallen[-1]:.3f} m after a day, off by {100 * off:.1f} % at most")
    (line,) = axes.plot(hours, theis, label=f"{far:.0f} m away")
    axes.plot(hours, fallen, "o", color=line.get_color(), ms=4)
axes.set(xlabel="hours", ylabel="drawdown, m", title="Theis's formula (lines), mosaicdd (dots)")
axes.legend()
