"""
A certificate
=============

A network's answer is as good as the network. With `certify` the exact local solver goes on from it until the residual of
the whole grid is below a bound: then it does not matter how good the network was. The estimate says what the error is
either way, without knowing the truth.
"""

import matplotlib.pyplot as plt
import numpy as np

import mosaicdd as m

problem = m.Problem((256, 256), "laplace", sides=m.Dirichlet("log((x+0.1)**2+(y+0.1)**2)"))
exact = m.solve(problem, "exact", rtol=1e-12).field
rows = []
for bound in (None, 1e-6, 1e-8, 1e-10):
    solution = m.solve(problem, "laplace", settings=m.SolveSettings(certify=bound))
    error = np.sqrt(np.mean((solution.field - exact) ** 2))
    rows.append((solution.error_estimate, error))
    print(f"certify {bound}: {solution.status}, estimated {rows[-1][0]:.1e}, true {error:.1e}")

# %%

figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
estimates, errors = zip(*rows, strict=True)
ax.loglog(errors, estimates, "o", errors, errors, "k:")
ax.set(xlabel="error", ylabel="estimated error")
