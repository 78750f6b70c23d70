"""Gradients by the numbers in the distance of a domain, against central differences, and on ranks."""

import numpy as np
import pytest
import torch
from central_differences import central_difference

import mosaicdd as m

CELLS, H = (20, 28), 1 / 16
TIGHT = m.SolveSettings(rtol=1e-13)
STEP = 1e-6  # small beside a cell: how volumes, faces and ties grow bends
RING = "abs(hypot(x - cx, y - cy) - r) - w"
AT = {"r": 0.396, "cx": 0.875, "cy": 0.578, "w": 0.21}  # where no node is near
W = np.random.default_rng(0).standard_normal([n + 1 for n in CELLS])
SIDES = {
    "values": {"outer": m.Dirichlet("x*y"), "hole1": m.Dirichlet(0.3)},
    "fluxes": {"outer": m.Robin(1.5, "x"), "hole1": m.Neumann("y")},
    "both": {"outer": m.Robin(1.5, "x"), "hole1": m.Dirichlet("1 + x*y")},
}


def ring(sides, **moved):
    domain = m.Domain.from_distance(RING, CELLS, H, parameters=AT | moved)
    return m.Problem(domain, "diffusion", {"a": "1 + x", "c": 0.3, "f": "y"}, SIDES[sides])


def solved(problem):
    return m.solve(problem, settings=TIGHT, keep="unknowns")


def functional(field):
    return W * np.nan_to_num(field) ** 2


@pytest.mark.parametrize("sides", SIDES)
def test_they_are_central_differences(sides):
    solution = solved(ring(sides))
    by = m.adjoint(solution, 2 * W * np.nan_to_num(solution.field))
    for name, value in AT.items():

        def moved(s, name=name, value=value):
            return functional(solved(ring(sides, **{name: value + s})).field)

        assert by[name] == central_difference(moved, STEP, TIGHT.rtol), name


def test_with_a_flow_and_by_a_function_too():
    def problem(r, cut):
        def distance(x, y, r, cut):
            return np.maximum(np.hypot(x - 0.9, y - 0.6) - r, x - cut)

        parameters = {"r": r, "cut": cut}
        domain = m.Domain.from_distance(distance, CELLS, H, parameters=parameters)
        fields = {"a": 0.3, "bx": "9*y", "by": "-5*x", "f": 1.0}
        return m.Problem(domain, "advection-diffusion", fields, {"outer": m.Dirichlet("x")})

    solution = solved(problem(0.52, 1.21))
    by = m.adjoint(solution, 2 * W * np.nan_to_num(solution.field))
    for name, moves in (("r", (1, 0)), ("cut", (0, 1))):

        def moved(s, moves=moves):
            return functional(solved(problem(0.52 + s * moves[0], 1.21 + s * moves[1])).field)

        assert by[name] == central_difference(moved, STEP, TIGHT.rtol)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_neither_the_units_of_the_distance_nor_of_a_parameter_matter(scale, unit):
    def by_width(scale, unit):
        distance = f"({scale}) * (abs(hypot(x - 0.875, y - 0.578) - 0.396) - w * {unit})"
        parameters = {"w": AT["w"] / unit}
        domain = m.Domain.from_distance(distance, CELLS, H, parameters=parameters)
        solution = solved(m.Problem(domain, "diffusion", {"f": "y"}, SIDES["both"]))
        return m.adjoint(solution, 2 * W * np.nan_to_num(solution.field))["w"] / unit

    assert by_width(scale, unit) == pytest.approx(by_width(1.0, 1.0), rel=1e-6)


@pytest.mark.parametrize("name", ["r", "cx"])
def test_remainders_fall_as_they_should(name):
    solve = m.differentiable(ring("both"), name, settings=TIGHT)
    rates = m.taylor_test(
        lambda r: torch.nan_to_num(solve(**{name: r})).square().sum(),
        torch.tensor(AT[name], dtype=torch.float64),
        torch.tensor(1.0, dtype=torch.float64),
        step=4e-4,
    )
    assert min(rates.first) > 1.9


def test_with_coefficients_they_are_one_call_and_backward():
    names = ("a", "r", "hole1")
    problem = m.Problem(ring("values").domain, "diffusion", {"f": 1.0}, SIDES["values"])
    solve = m.differentiable(problem, names, settings=TIGHT)
    values = {"a": 1.5 + 0 * W, "r": 0.3961, "hole1": 0.7}

    def tensors(moved):
        return {n: torch.tensor(v + moved, dtype=torch.float64) for n, v in values.items()}

    def of(named):
        return torch.nan_to_num(solve(**named)).square()

    here = {name: tensor.requires_grad_() for name, tensor in tensors(0.0).items()}
    of(here).sum().backward()
    slope = sum(tensor.grad.sum().item() for tensor in here.values())
    assert slope == central_difference(lambda s: of(tensors(s)), STEP, TIGHT.rtol)
    assert abs(here["r"].grad) > 0.1 * abs(slope)


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_ranks_have_the_same(comm, by_one):
    domain = m.Domain.from_distance(
        "abs(hypot(x - 1, y - 0.75) - r) - 0.22", (96, 128), 1 / 64, parameters={"r": 0.451}
    )
    problem = m.Problem(domain, "poisson", {"f": "x"}, {"outer": m.Robin(1.5, 0.7)})
    w = np.random.default_rng(1).uniform(size=(97, 129))
    expected = by_one(lambda: m.adjoint(solved(problem), w))
    with m.Solver(problem, settings=TIGHT, ranks=comm, keep="unknowns") as solver:
        solution = solver()
        by = m.adjoint(solution, w[solution.place], solver=solver)
    assert by["r"] == pytest.approx(expected["r"], rel=1e-7)


def test_what_has_no_derivative_is_said():
    disk = m.Domain.from_distance("hypot(x - 1, y - 1) - r", (32, 32), H, parameters={"r": 0.75})
    problem = m.Problem(disk, "poisson", {"f": 1.0})
    with pytest.raises(ValueError, match=r"outline passes a node.* at r=0.75"):  # at four
        m.adjoint(m.solve(problem), np.ones((33, 33)))
    solve = m.differentiable(problem, "r")
    r = torch.tensor(0.76, dtype=torch.float64, requires_grad=True)
    total = torch.nan_to_num(solve(r=r)).sum()
    with pytest.raises(m.Unsupported, match="first derivatives only"):
        torch.autograd.grad(total, r, create_graph=True)
    heat = m.Problem(disk, "heat")
    with pytest.raises(ValueError, match="unknown derivative by 'r'"):
        m.differentiable(heat, "r", dt=0.1, steps=1)
    named = m.Domain.from_distance("hypot(x, y) - c", (32, 32), H, parameters={"c": 0.7})
    with pytest.raises(ValueError, match="c is a parameter of the domain and of the problem"):
        m.differentiable(m.Problem(named, "diffusion"), "c")
    with pytest.raises(ValueError, match="finite number with a name of its own"):
        m.Domain.from_distance("x - 1", (32, 32), H, parameters={"x": 0.7})
    with pytest.raises(ValueError, match="given at nodes"):
        m.Domain.from_distance(np.ones((33, 33)), (32, 32), H, parameters={"r": 0.7})
    with pytest.raises(ValueError, match="unknown parameter of the domain 's'"):
        disk.with_parameters(s=1.0)


def test_domains_tell_their_parameters():
    one, other = (ring("both", r=r).domain for r in (0.396, 0.4))
    assert one == ring("both").domain != other
    assert one.with_parameters(r=0.4) == other
    assert "r=0.396, cx=0.875" in str(one)
