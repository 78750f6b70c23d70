"""
A run on several ranks, and its report
======================================

The same command as on one rank, started by `mpiexec` (or `srun`); the file is the same but for rounding, and `report`
makes a page of both that can be sent to somebody.
"""

import subprocess
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import mosaicdd as m

folder = Path(tempfile.mkdtemp())


def run(*command):
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


problem = (
    "--cells",
    "512x256",
    "--pde",
    "diffusion",
    "--boundary",
    "expr:x",
    "--field",
    "a=expr:1+x*x",
)
print(run("mosaicdd", "solve", "-o", "alone.h5", *problem))
print(run("mpiexec", "-n", "2", "mosaicdd", "solve", "-o", "two.h5", *problem))
print(run("mosaicdd", "report", "alone.h5", "two.h5", "-o", "runs.html"))

# %%

alone, two = m.read(folder / "alone.h5"), m.read(folder / "two.h5")
difference = np.abs(alone.field - two.field)
print(f"largest difference {difference.max():.0e}")
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
image = ax.imshow(two.field, origin="lower", extent=(0, 8, 0, 4))
rows = two.attributes["dims"][1]
ax.axhline(2, color="white", ls="--", lw=0.8) if rows > 1 else ax.axvline(
    4, color="white", ls="--", lw=0.8
)
ax.set_title("two ranks, a block each")
figure.colorbar(image, ax=ax)
