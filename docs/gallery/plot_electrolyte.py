"""
Ions around charged cylinders
=============================

In salt water the potential around charged particles obeys the Poisson-Boltzmann equation, `-lap u + c sinh u = 0`: ions
of the other sign gather there and hide the charge. The linear (Debye and Hueckel) equation, `-lap u + c u = 0`, is
right for weak charges only.
"""

import matplotlib.pyplot as plt

import mosaicdd as m

h = 1 / 64
cells = (256, 256)
cylinders = "minimum(hypot(x-1.3,y-2)-0.4, hypot(x-2.7,y-2)-0.4)"
around = m.Domain.from_distance(f"-({cylinders})", cells, h)
c = 4.0  # one over the squared Debye length
sides = {"hole1": m.Neumann(10.0), "hole2": m.Neumann(10.0)}  # the charge of the surfaces
sides |= {name: m.Dirichlet(0.0) for name in ("left", "right", "bottom", "top")}

solutions = {}
for name in ("poisson-boltzmann", "screened-poisson"):
    solutions[name] = m.solve(m.Problem(around, name, {"c": c}, sides))
    middle = solutions[name].at([[2.0, 2.0]])[0]
    print(f"{name}: {solutions[name].status}, between the cylinders u = {middle:.3f}")

# %%

figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for (name, solution), style in zip(solutions.items(), ("-", "--"), strict=True):
    ax.plot(solution.x, solution.field[128], style, label=name)
ax.set(xlabel="x, through both cylinders", ylabel="potential")
ax.legend()
