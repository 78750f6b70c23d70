"""Functionals of nodes whose values are given: nothing but these values moves them, each as much as it has of a node's value."""

import numpy as np
import pytest
import torch

import mosaicdd as m
from mosaicdd.gradients.parameters import Parameters

N = 48
PLANE = m.Domain((N, N), 1 / N)
X = np.broadcast_to(np.linspace(0, 1, N + 1), (N + 1, N + 1))
MEDIUM = {"a": 1 + X, "f": 1.0}
VALUES = {"left": m.Dirichlet("y"), "right": m.Dirichlet("1 + y"), "top": m.Neumann(1.0)}


def frame():
    mask = np.ones((N, N), bool)
    mask[5:9, 6:11] = False
    return m.Domain.from_mask(mask, 1 / N, per_cell=True)


PROBLEMS = {
    "transforms": m.Problem(PLANE, "poisson", {"f": 1.0}, m.Dirichlet("x + y")),
    "natural side": m.Problem(PLANE, "diffusion", {"f": 1.0}, VALUES),
    "medium": m.Problem(PLANE, "diffusion", MEDIUM, m.Dirichlet("x + y")),
    "velocity": m.Problem(PLANE, "advection-diffusion", {"bx": 3.0, "f": 1.0}, VALUES),
    "held": m.Problem(
        PLANE, "diffusion", MEDIUM, VALUES | {"pond": m.Held("hypot(x - 0.5, y - 0.5) < 0.2", 2.0)}
    ),
    "mask": m.Problem(frame(), "diffusion", {"f": 1.0}, {"outline": m.Dirichlet(0.5)}),
    "box": m.Problem(m.Domain((16, 16, 24), 1 / 16), "poisson", {"f": 1.0}, m.Dirichlet("x + z")),
    "nonlinear": m.Problem(PLANE, "poisson-boltzmann", {"f": 1.0}, m.Dirichlet("x + y")),
}


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("kind", PROBLEMS)
def test_its_derivatives_are_its_weights_and_by_all_others_zero(kind, comm):
    problem = PROBLEMS[kind]
    with m.Solver(problem, "exact", ranks=comm, rtol=1e-10) as solver:
        solution = solver()
        other = solver(problem.with_fields(f=2.0)).local
        given = solution.local == other
        w = np.where(given, 1 + np.arange(given.size).reshape(given.shape), 0.0)
        by = m.adjoint(solution, w, solver=solver)
    held = {n: v for n, v in Parameters(problem).values().items() if by[n].any()}
    assert held
    assert held.keys() <= {"left", "right", "bottom", "top", "back", "front", "pond", "outline"}
    total = comm.allreduce(float((w[given] * solution.local[given]).sum()))
    # A sum of some hundred products, in another order.
    assert sum((by[n] * v).sum() for n, v in held.items()) == pytest.approx(total, rel=1e-12)


def test_in_torch_and_in_a_march():
    left = torch.arange(N + 1.0, dtype=torch.float64, requires_grad=True)
    solve = m.differentiable(m.Problem(PLANE, "diffusion", {"f": 1.0}, VALUES), "left")
    solve(left=left)[5, 0].backward()
    assert left.grad.tolist() == [float(k == 5) for k in range(N + 1)]

    left.grad = None
    march = m.differentiable(m.Problem(PLANE, "heat", {"f": 1.0}, VALUES), "left", dt=0.1, steps=3)
    march(left=left)[2:, 7, 0].sum().backward()
    assert left.grad.tolist() == [2.0 * (k == 7) for k in range(N + 1)]
