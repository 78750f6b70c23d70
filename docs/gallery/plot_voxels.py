"""
A voxel image
=============

Ions in the pores of an electrode, heat in a foam, a current in a sintered metal: what does a medium conduct as a whole,
of which there is an image? A mask of the voxels that conduct is all that is asked for.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter

import mosaicdd as m

noise = np.random.default_rng(4).standard_normal((80, 80, 80))
smooth = gaussian_filter(noise, (1.5, 2.5, 5), mode="wrap")  # longer along x than along z
pores = smooth < np.quantile(smooth, 0.4)
result = m.effective(pores, spacing=1e-6, field=True)
print(result)

# %%
# Along x it conducts best, as pores are longer there. The tortuosity factor is what the pores' share of the volume is divided
# by. No structure conducts more than the upper bound, which is that of straight tubes.

for name, along in result.axes.items():
    low, high = along.wiener
    print(f"{name}: {low:.3f} <= {along.conductivity:.4f} <= {high:.3f}")

# %%
# The values in a slice, from 1 on the left to 0 on the right, and how much flows along x: most where pores are narrow, little
# in dead ends. Gray are the solid, and pores that float.

u = result["x"].field[31]
flux = -80 * np.diff(u, axis=1)  # NaN where one of both voxels does not conduct
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for ax, values, colours, most, label in (
    (axes[0], u[:, :-1], "viridis", 1, "value"),
    (axes[1], flux, "magma", 2, "flux along x, of that without obstacles"),
):
    ax.set_facecolor("lightgray")
    image = ax.imshow(values, origin="lower", cmap=colours, vmin=0, vmax=most)
    figure.colorbar(image, ax=ax, label=label)
