"""
A network of one's own
======================

From no data at all to a solver: small problems are drawn and solved, a network learns them in some seconds, and solves a
domain 64 times as large as what it has seen. Each answer says how far off it is, and can be made exact.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import mosaicdd as m

folder = Path(tempfile.mkdtemp())
data, model = folder / "data.h5", folder / "model.h5"
m.generate(data, m.GenerationSettings(samples=1000, windows=50, method="direct"))
m.train(data, model, m.TrainingSettings(epochs=20, batch_size=64))

# %%

problem = m.Problem((256, 256), "laplace", sides=m.Dirichlet("sin(2*x)*exp(-y/2)"))
rough = m.solve(problem, str(model))
certified = m.solve(problem, str(model), settings=m.SolveSettings(certify=1e-10))
for name, solution in (("network", rough), ("certified", certified)):
    error = solution.compare("direct").mae
    print(
        f"{name}: {solution.status}, estimated error {solution.error_estimate:.1e}, MAE {error:.1e}"
    )

# %%

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
extent = (0, 4, 0, 4)
image = axes[0].imshow(rough.field, origin="lower", extent=extent)
figure.colorbar(image, ax=axes[0], label="by the network")
difference = abs(rough.field - certified.field)
image = axes[1].imshow(difference, origin="lower", extent=extent, cmap="magma")
figure.colorbar(image, ax=axes[1], label="off by")
