"""
Image cloning
=============

A piece of a picture is set into another so that no seam is seen (Perez, Gangnet and Blake, 2003): inside of the piece the
differences between neighbouring pixels are those of the source, at its edge the values are those of the target. That is
Poisson's equation in each of three colours, solved at once, on a domain that is the piece.
"""

import matplotlib.pyplot as plt
import numpy as np

import mosaicdd as m

ny, nx = 192, 256
y, x = np.mgrid[0 : ny + 1, 0 : nx + 1]
# The target, a dusk sky; the source, a disk with craters on another ground.
sky = np.stack([0.9 - 0.6 * y / ny, 0.5 - 0.2 * y / ny, 0.35 + 0.3 * y / ny])
ground = np.stack([0.55 + 0 * x, 0.6 + 0.1 * x / nx, 0.5 + 0.1 * y / ny])
moon = np.hypot(x - 150, y - 120) < 38
craters = sum(
    np.exp(-((x - a) ** 2 + (y - b) ** 2) / s)
    for a, b, s in ((140, 130, 60), (165, 110, 90), (150, 95, 30))
)
source = np.where(moon, 0.85 - 0.4 * craters, ground)

# %%
# The piece is a mask of pixels. What `f` is at its pixels, the source's own differences say.

piece = np.hypot(x - 150, y - 120) < 55
around = np.pad(source, ((0, 0), (1, 1), (1, 1)), mode="edge")
f = (
    4 * source
    - around[:, 2:, 1:-1]
    - around[:, :-2, 1:-1]
    - around[:, 1:-1, 2:]
    - around[:, 1:-1, :-2]
)


def of_target(values):
    return lambda x, y: values[np.rint(y).astype(int), np.rint(x).astype(int)]


domain = m.Domain.from_mask(piece, 1.0)
problem = m.Problem(
    domain, "poisson", {"f": f}, {"outline": m.Dirichlet([of_target(colour) for colour in sky])}
)
solution = m.solve(problem)
cloned = np.where(piece, solution.field, sky)
print(solution.status, f"{solution.problems} colours")

# %%

figure, axes = plt.subplots(1, 3, figsize=(10, 2.8), layout="constrained")
pasted = np.where(piece, source, sky)
for ax, picture, title in zip(
    axes, (source, pasted, cloned), ("source", "pasted", "cloned"), strict=True
):
    ax.imshow(np.clip(picture.transpose(1, 2, 0), 0, 1), origin="lower")
    ax.set_title(title)
    ax.axis("off")
