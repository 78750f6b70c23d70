"""
A medium that is large, and a window of it
==========================================

Four million unknowns with a contrast of ten thousand: the file is written strip by strip while the answer is filled, so
the field need not fit into memory, and a window looks closer at a part of it.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import mosaicdd as m

medium = "lognormal:seed=0,length=1,contrast=1e4"
problem = m.Problem((2048, 2048), "diffusion", {"a": medium, "f": 1.0}, m.Dirichlet(0.0))
path = Path(tempfile.mkdtemp()) / "large.h5"
solution = m.solve(problem, output=m.Output(path))
print(
    f"{solution.status} after {solution.iterations} iterations, estimated error {solution.error_estimate:.0e}"
)

# %%
# The file's arrays are read when they are asked for. A window fills a part of the domain only.

closer = m.solve(problem, window={"x": (12.0, 14.0), "y": (20.0, 22.0)})
print(closer.field.shape)

# %%

stored = m.read(path)
figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
axes[0].imshow(stored.field[::4, ::4], origin="lower", extent=(0, 32, 0, 32))
axes[0].add_patch(plt.Rectangle((12, 20), 2, 2, fill=False, color="red"))
axes[1].imshow(closer.field, origin="lower", extent=(12, 14, 20, 22))
axes[1].set_title("closer")
