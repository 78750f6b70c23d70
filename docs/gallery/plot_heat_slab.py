"""
A part of another program's gradient
====================================

Frameworks that chain solvers of many kinds ask two functions of each: `apply`, from inputs to outputs, and
`vector_jacobian_product`, from what a unit of each output is worth to what a unit of each input is. Here both are made
for the heat slab of the *Mosaic* benchmark of differentiable solvers (Pasteur Labs, arXiv 2606.27895): a density in each
element makes a conductivity, heat flows in on the right and out on the left, and the compliance says how hot it gets.
"""

import matplotlib.pyplot as plt
import numpy as np

import mosaicdd as m

settings = m.SolveSettings(rtol=1e-10)


def slab(rho):
    """Return the problem on [0, 2] x [0, 1] with a density in each of (ny, nx) bilinear elements."""
    ny, nx = rho.shape
    domain = m.Domain((ny, nx), {"y": 1 / ny, "x": 2 / nx})
    sides = {
        "left": m.Dirichlet(0.0),
        "right": m.Neumann(1.0),
        "top": m.Neumann(0.0),
        "bottom": m.Neumann(0.0),
    }
    return m.Problem(domain, "bilinear-diffusion", {"a": 1e-3 + 0.999 * rho**3}, sides)


def loads(shape):
    """Return what flows in at each node, of a layer that is as deep as an element is wide."""
    ny, nx = shape
    flows = np.zeros((ny + 1, nx + 1))
    flows[:, -1] = 1 / ny
    flows[[0, -1], -1] /= 2
    return flows * nx / 2


def apply(inputs):
    """Return the outputs by their names."""
    solution = m.solve(slab(inputs["rho"]), settings=settings)
    return {"thermal_compliance": (loads(inputs["rho"].shape) * solution.field).sum()}


def vector_jacobian_product(inputs, vjp_inputs, vjp_outputs, cotangent_vector):
    """Return for each input what a unit of it is worth, by one adjoint solve with the plan of the first."""
    assert set(vjp_inputs) == {"rho"}
    assert set(vjp_outputs) == {"thermal_compliance"}
    rho = inputs["rho"]
    with m.Solver(slab(rho), settings=settings) as solver:
        worth = cotangent_vector["thermal_compliance"] * loads(rho.shape)
        by_conductivity = m.adjoint(solver(), worth, solver=solver)["a"]
    return {"rho": by_conductivity * 3 * 0.999 * rho**2}


# %%
# The benchmark's densities, and the compliances that it publishes. With three elements along x these are not square.


def density(nx):
    ny = max(1, nx // 2)
    noise = np.random.default_rng(0).standard_normal(nx * ny).astype(np.float32)
    return np.clip(0.5 + 0.3 * noise, 0.05, 0.95).reshape(ny, nx).astype(float)


published = {
    2: 16.552181,
    3: 19.562195,
    4: 23.414675,
    6: 85.65075,
    8: 99.867744,
    12: 85.6194,
    16: 122.75734,
    24: 329.5523,
}
off = [
    abs(apply({"rho": density(nx)})["thermal_compliance"] / value - 1)
    for nx, value in published.items()
]
print(f"eight compliances, off by at most {max(off):.0e} of each: {max(off) < 1e-5}")

# %%
# The gradient beside central differences, in twenty random directions.

rho = density(48)
gradient = vector_jacobian_product(
    {"rho": rho}, {"rho"}, {"thermal_compliance"}, {"thermal_compliance": 1.0}
)["rho"]
rng = np.random.default_rng(1)
relative = []
for _ in range(20):
    along = rng.standard_normal(rho.shape)
    ahead, back = (
        apply({"rho": rho + step * along})["thermal_compliance"] for step in (1e-5, -1e-5)
    )
    difference = (ahead - back) / 2e-5
    relative.append(abs((gradient * along).sum() - difference) / np.linalg.norm(gradient))
print(
    f"twenty directions, off by at most {max(relative):.0e} of the gradient: {max(relative) < 1e-6}"
)

# %%

solution = m.solve(slab(rho), settings=settings)
print(solution.status, f"temperatures up to {solution.field.max():.1f}")
figure, axes = plt.subplots(1, 3, figsize=(11, 2.6), layout="constrained")
for ax, values, title, colours in (
    (axes[0], rho, "density", "Greys"),
    (axes[1], solution.field, "temperature", "inferno"),
    (
        axes[2],
        np.log10(np.maximum(-gradient, 1e-3 * -gradient.min())),
        "log10 of -gradient",
        "viridis",
    ),
):
    image = ax.imshow(values, origin="lower", cmap=colours, extent=(0, 2, 0, 1))
    ax.set(title=title, xticks=[], yticks=[])
    figure.colorbar(image, ax=ax, shrink=0.8)
