"""
A soap film
===========

A wire frame of changing height spans a film of least area. The equation is nonlinear where the film is steep: Laplace's
equation, which takes slopes for small, is off by what the second picture shows.
"""

import matplotlib.pyplot as plt

import mosaicdd as m

frame = m.Dirichlet("1.2*sin(1.5*x)*cos(0.8*y)")
film = m.solve(m.Problem((256, 256), "minimal-surface", sides=frame))
flat = m.solve(m.Problem((256, 256), "laplace", sides=frame))
print(f"{film.status} after {film.iterations} of Newton's steps")

# %%

figure = plt.figure(figsize=(10, 4), layout="constrained")
ax = figure.add_subplot(1, 2, 1, projection="3d")
step = 8
ax.plot_surface(
    film.x[None, ::step], film.y[::step, None], film.field[::step, ::step], cmap="viridis", lw=0
)
ax.set_title("the film")
ax = figure.add_subplot(1, 2, 2)
image = ax.imshow(film.field - flat.field, origin="lower", extent=(0, 4, 0, 4), cmap="RdBu")
ax.set_title("less Laplace's surface")
figure.colorbar(image, ax=ax)
