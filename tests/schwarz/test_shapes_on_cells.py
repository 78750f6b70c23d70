"""Domains with an outline on cells that are no squares, nor cubes."""

import numpy as np
import pytest
import torch

import mosaicdd as m

U = "exp(0.3*x)*sin(0.4*y)"
SLOPE = {"x": "0.3*exp(0.3*x)*sin(0.4*y)", "y": "0.4*exp(0.3*x)*cos(0.4*y)"}
SOURCE = "0.07*exp(0.3*x)*sin(0.4*y)"


_GRIDS = (1, 2, 4)  # as fine


def orders(errors):
    """Return the orders of several errors, of the straight lines through their logarithms."""
    return -np.polyfit(np.log(_GRIDS[: len(errors)]), np.log(errors), 1)[0]


def disc(cells):
    """Return a disc of radius 2.3 around (6, 3), on 12 by 6."""
    spacing = (6 / cells[0], 12 / cells[1])
    return m.Domain.from_distance("sqrt((x - 6)**2 + (y - 3)**2) - 2.3", cells, spacing)


def flux(alpha):
    """Return what flows in through the disc's outline, with an exchange."""
    outwards = f"(({SLOPE['x']})*(x - 6) + ({SLOPE['y']})*(y - 3))/sqrt((x - 6)**2 + (y - 3)**2)"
    return m.Robin(alpha, f"{outwards} + {alpha}*{U}") if alpha else m.Neumann(outwards)


def errors(solution, exact, *, level=False):
    """Return the largest error and the root mean square, over what has a value."""
    domain = solution.problem.domain
    axes = (
        np.arange(n + 1) * step for n, step in zip(domain.cells, domain.grid().steps, strict=True)
    )
    error = solution.field - exact(*np.meshgrid(*axes, indexing="ij"))
    if level:
        error -= np.nanmean(error)
    return np.nanmax(np.abs(error)), np.sqrt(np.nanmean(error**2))


@pytest.mark.parametrize("side", ["values", "exchange", "flux"])
@pytest.mark.parametrize("cells", [(40, 40), (80, 40)])  # twice and four times as wide as high
def test_outlines_are_of_second_order(side, cells):
    condition = {"values": m.Dirichlet(U), "exchange": flux(1.5), "flux": flux(0)}[side]
    every = []
    for times in _GRIDS:
        problem = m.Problem(
            disc(tuple(times * n for n in cells)), "poisson", {"f": SOURCE}, {"outline": condition}
        )
        solution = m.solve(problem, rtol=1e-10)
        assert solution.converged
        exact = errors(
            solution, lambda y, x: np.exp(0.3 * x) * np.sin(0.4 * y), level=side == "flux"
        )
        every.append(exact)
    largest, mean = orders(every)
    assert largest > 1.6
    assert mean > 1.8


@pytest.mark.parametrize("side", ["values", "exchange"])
def test_outlines_in_space_are_of_second_order(side):
    away = "sqrt((x - 2)**2 + (y - 2)**2 + (z - 1.5)**2)"
    outwards = f"(({SLOPE['x']})*(x - 2) + ({SLOPE['y']})*(y - 2) + 0.4*z*(z - 1.5))/{away}"
    whole = f"{U} + 0.2*z**2"
    condition = {
        "values": m.Dirichlet(whole),
        "exchange": m.Robin(1.5, f"{outwards} + 1.5*({whole})"),
    }
    every = []
    for n in _GRIDS:
        cells = (14 * n, 8 * n, 11 * n)
        spacing = (3 / cells[0], 4 / cells[1], 4 / cells[2])
        domain = m.Domain.from_distance(f"{away} - 1.2", cells, spacing)
        problem = m.Problem(
            domain, "poisson", {"f": f"{SOURCE} - 0.4"}, {"outline": condition[side]}
        )
        solution = m.solve(problem, rtol=1e-10)
        assert solution.converged
        every.append(
            errors(solution, lambda z, y, x: np.exp(0.3 * x) * np.sin(0.4 * y) + 0.2 * z**2)
        )
    largest, mean = orders(every)
    assert largest > 1.5
    assert mean > 1.8


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_what_is_linear_is_solved_to_rounding_in_a_polygon(comm):
    corners = [(1.2, 1.1), (13.1, 0.9), (12.0, 10.9), (2.3, 9.7)]
    domain = m.Domain.from_polygons(corners, cells=(72, 90), spacing=(0.5 / 3, 0.15))
    problem = m.Problem(domain, "laplace", {}, {"outline": m.Dirichlet("x + 2*y")})
    solution = m.solve(problem, rtol=1e-13, ranks=comm)
    x, y = 0.15 * np.arange(91), np.arange(73) / 6
    inside = np.isfinite(field := solution.gather())
    assert inside.sum() > 3000
    np.testing.assert_allclose(field[inside], (x + 2 * y[:, None])[inside], rtol=0, atol=1e-9)


def half_mask():
    mask = np.ones((24, 30), bool)
    mask[8:14, 10:18] = mask[:5, :7] = False
    return np.kron(mask, np.ones((3, 3), bool))


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("kind", ["distance", "mask"])
def test_stretched_cells_are_those_of_a_medium_that_conducts_otherwise_along_an_axis(kind, comm):
    # With values on outlines, or nothing through them, equations know lengths along axes only.
    cells, high, wide = (72, 90), 0.5 / 3, 2.5

    def domain(dx):
        if kind == "mask":
            return m.Domain.from_mask(half_mask(), (high, dx))
        distance = f"((x*{high / dx} - 7)**2/36 + (y - 6)**2/20 - 1)*5"
        return m.Domain.from_distance(distance, cells, (high, dx))

    def solved(dx, **medium):
        data = f"sin(x*{high / dx}) + y"
        conditions = {"outline": m.Dirichlet(data)}
        if kind == "mask":
            conditions = {"outline": m.Neumann(0.0), "left": m.Dirichlet("y"), "top": m.Robin(0.4)}
        problem = m.Problem(domain(dx), "diffusion", medium | {"f": data, "c": 0.1}, conditions)
        return m.solve(problem, rtol=1e-12, ranks=comm)

    stretched, square = solved(high * wide), solved(high, axx=wide**-2, ayy=1.0)
    assert stretched.converged
    assert stretched.iterations == square.iterations
    field = square.gather()
    np.testing.assert_allclose(
        stretched.gather(), field, rtol=0, atol=1e-10 * np.nanmax(np.abs(field))
    )


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_ranks_agree_and_nothing_is_lost(comm):
    problem = m.Problem(
        disc((72, 80)), "diffusion", {"a": "1 + x*y", "f": "x"}, {"outline": flux(1.5)}
    )
    solution = m.solve(problem, rtol=1e-11, ranks=comm)
    alone = m.solve(problem, rtol=1e-11)
    np.testing.assert_allclose(
        solution.gather(), alone.field, rtol=0, atol=1e-10 * np.nanmax(alone.field)
    )
    balance = solution.balance()
    assert balance.relative < 1e-8
    assert solution.flow("outline") == pytest.approx(balance.sources, rel=1e-8)


def test_gradients_know_the_lengths_of_outlines():
    given = {"a": torch.tensor(1.3), "f": torch.tensor(0.7), "outline": torch.tensor(2.0)}

    def functional(**values):
        conditions = {"outline": m.Robin(1.5, values["outline"].item())}
        fields = {"a": values["a"].item(), "f": values["f"].item()}
        problem = m.Problem(disc((20, 24)), "diffusion", fields, conditions)
        solve = m.differentiable(problem, wrt=tuple(values), rtol=1e-13)
        return solve(**values).nan_to_num().square().sum()

    tensors = {name: value.double().requires_grad_() for name, value in given.items()}
    functional(**tensors).backward()
    for name, tensor in tensors.items():
        step = 1e-4
        ends = [
            float(functional(**given | {name: given[name].double() + way}).detach())
            for way in (-step, step)
        ]
        assert float(tensor.grad) == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-6)
