"""Differentiable finite elements from the package index, for the heat slab of `heat_slab`.

`pip install scikit-fem torch-fem`; what is not installed has no row. Each function takes a density per element and
returns the compliance and its gradient by the density, from the mesh on, as `heat_slab` does. The compliance is
its own adjoint, so scikit-fem's gradient needs no second solve; torch-fem's is by autograd.
"""

import importlib.util
from collections.abc import Callable

import numpy as np
import pyamg
import torch

Answer = tuple[float, np.ndarray]


def installed_peers() -> dict[str, Callable[[np.ndarray, float], Answer]]:
    """Return what is installed, by its name in the table."""
    peers: dict[str, tuple[str, Callable[[np.ndarray, float], Answer]]] = {
        "scikit-fem, SuperLU": ("skfem", by_scikit_fem),
        "scikit-fem, pyAMG": ("skfem", by_scikit_fem_and_pyamg),
        "torch-fem": ("torchfem", by_torch_fem),
    }
    return {
        name: peer for name, (module, peer) in peers.items() if importlib.util.find_spec(module)
    }


def by_scikit_fem(density: np.ndarray, rtol: float) -> Answer:
    """Solve by scikit-fem's default, scipy's direct solver."""
    import skfem

    return _by_scikit_fem(density, skfem.solver_direct_scipy())


def by_scikit_fem_and_pyamg(density: np.ndarray, rtol: float) -> Answer:
    """Solve by conjugate gradients under pyAMG's aggregates, to a relative residual."""

    def solve(matrix, b):
        return pyamg.smoothed_aggregation_solver(matrix).solve(b, tol=rtol, accel="cg", maxiter=300)

    return _by_scikit_fem(density, solve)


def _by_scikit_fem(density: np.ndarray, solver: Callable) -> Answer:
    import skfem
    from skfem.helpers import dot, grad

    ny, nx = density.shape
    # One row of elements after another: the order of the density.
    mesh = skfem.MeshQuad.init_tensor(np.linspace(0, 2, nx + 1), np.linspace(0, 1, ny + 1))
    centres = mesh.p[:, mesh.t].mean(axis=1)
    order = np.lexsort((centres[0].round(9), centres[1].round(9)))
    per_element = np.empty(nx * ny)
    per_element[order] = density.ravel()
    basis = skfem.Basis(mesh, skfem.ElementQuad1())
    constant = basis.with_element(skfem.ElementQuad0())
    conductivity = constant.zeros()
    conductivity[constant.element_dofs[0]] = 1e-3 + 0.999 * per_element**3
    stiffness = skfem.BilinearForm(lambda u, v, w: w["k"] * dot(grad(u), grad(v)))
    matrix = stiffness.assemble(basis, k=constant.interpolate(conductivity))
    right = basis.boundary(lambda x: np.isclose(x[0], 2))
    loads = skfem.LinearForm(lambda v, w: 1.0 * v).assemble(right)
    held = basis.get_dofs(lambda x: np.isclose(x[0], 0))
    u = skfem.solve(*skfem.condense(matrix, loads, D=held), solver=solver)
    energy = skfem.Functional(lambda w: dot(grad(w["u"]), grad(w["u"]))).elemental(
        basis, u=basis.interpolate(u)
    )
    gradient = -energy[order] * 3 * 0.999 * density.ravel() ** 2
    layer = 2 / nx
    return loads @ u / layer, gradient.reshape(ny, nx) / layer


def by_torch_fem(density: np.ndarray, rtol: float) -> Answer:
    """Solve by torch-fem's own choice of a solver, to a relative residual."""
    from torchfem import PlanarHeat
    from torchfem.materials import IsotropicConductivity2D
    from torchfem.mesh import rect_quad

    ny, nx = density.shape
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        nodes, elements = rect_quad(nx + 1, ny + 1, 2.0, 1.0)
        centres = nodes[elements].mean(dim=1).numpy().round(9)
        order = torch.from_numpy(np.lexsort((centres[:, 0], centres[:, 1])))
        rho = torch.from_numpy(density.ravel()).requires_grad_()
        per_element = torch.empty_like(rho).index_copy(0, order, 1e-3 + 0.999 * rho**3)
        model = PlanarHeat(nodes, elements, IsotropicConductivity2D(per_element))
        loads = model.integrate_line_load(nodes[:, 0] > 2 - 1e-9, torch.ones(1))
        model.heat_flux = loads
        model.constraints = (nodes[:, :1] < 1e-9).clone()
        u, *_ = model.solve(rtol=rtol, stol=rtol, differentiable_parameters=rho)
        compliance = (loads * u).sum() / (2 / nx)
        (gradient,) = torch.autograd.grad(compliance, rho)
    finally:
        torch.set_default_dtype(before)
    return compliance.item(), gradient.reshape(ny, nx).numpy()
