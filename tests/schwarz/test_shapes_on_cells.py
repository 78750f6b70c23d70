"""Domains with an outline on cells that are no squares, nor cubes."""

import numpy as np
import pytest
import torch
from medium_by_cells import equations, field_and_flows

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


@pytest.mark.parametrize("spacing", [(0.01, 0.4), (0.4, 0.01), (0.1, 0.16)])
def test_polygons_are_where_they_are_in_very_flat_cells(spacing):
    """Distances are right at both ends of every edge of the grid that crosses one."""
    cells = tuple(round(4 / step) for step in spacing)
    low, high = 0.433, 3.371
    square = [(low, low), (high, low), (high, high), (low, high)]
    domain = m.Domain.from_polygons(square, cells=cells, spacing=spacing)
    grid = domain.grid()
    level = domain.shape.level(grid, tuple(slice(0, n) for n in grid.nodes))
    for along, places in zip(
        (level, level.T),
        (4 / cells[1] * np.arange(cells[1] + 1), 4 / cells[0] * np.arange(cells[0] + 1)),
        strict=True,
    ):
        line = along[len(along) // 2]
        before = np.flatnonzero((line[1:] < 0) != (line[:-1] < 0))
        p, q = line[before], line[before + 1]
        crossed = places[before] + p / (p - q) * np.diff(places)[before]
        np.testing.assert_allclose(crossed, [low, high], rtol=0, atol=1e-12)


def test_what_is_linear_is_exact_with_a_flux_through_a_slope():
    """What an outline leaves of volumes, faces and sides closes."""
    line = "2*x - 3*y"
    domain = m.Domain.from_distance("0.8*y - 0.6*x - 0.13", (40, 32), (0.05, 0.125))
    sides = {"left": m.Neumann(-2.0), "right": m.Neumann(2.0), "top": m.Dirichlet(line)}
    sides |= {"bottom": m.Dirichlet(line), "outline": m.Neumann(2 * -0.6 - 3 * 0.8)}
    solution = m.solve(m.Problem(domain, "laplace", None, sides), rtol=1e-12)
    exact = 2 * solution.x - 3 * solution.y[:, None]
    there = np.isfinite(solution.field)
    assert there.sum() > 200
    np.testing.assert_allclose(solution.field[there], exact[there], rtol=0, atol=1e-9)


def assembled(mask, a, f, alpha, g, steps):
    """Return the solution on a mask of cells with exchange all around, and what flows out."""
    matrix, volumes = equations(np.where(mask, a, 0.0), steps)
    around, lengths = np.pad(mask, 1).astype(int), np.zeros(volumes.shape)
    rows, columns = (abs(np.diff(around, axis=axis)) for axis in (0, 1))  # faces that bound a cell
    for end in (slice(None, -1), slice(1, None)):
        lengths[:, end] += rows[:, 1:-1] * steps[1] / 2
        lengths[end] += columns[1:-1] * steps[0] / 2
    nowhere = np.full(volumes.shape, np.nan)
    field, _ = field_and_flows(matrix, alpha * lengths, f * volumes + g * lengths, nowhere)
    return np.where(volumes > 0, field, np.nan), ((alpha * field - g) * lengths).sum()


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_a_mask_of_cells_is_that_of_an_assembly_of_its_own(comm):
    rng, steps = np.random.default_rng(3), (0.1, 0.25)
    mask = np.ones((84, 52), bool)
    mask[20:34, 8:21] = mask[60:, 30:] = mask[:4] = False
    a = np.exp(rng.standard_normal(mask.shape))
    domain = m.Domain.from_mask(mask, steps, per_cell=True)
    every = "outline", "left", "right", "top"
    sides = dict.fromkeys(every, m.Robin(2.0, 0.7))
    problem = m.Problem(domain, "diffusion", {"a": a, "f": 0.3}, sides)
    solution = m.solve(problem, ranks=comm, rtol=1e-12)
    expected, out = assembled(mask, a, 0.3, 2.0, 0.7, steps)
    balance = solution.balance()
    assert solution.converged
    assert out == pytest.approx(0.3 * mask.sum() * 0.1 * 0.25)
    flows = sum(solution.flow(name) for name in every)
    assert flows == pytest.approx(out, rel=1e-9)
    assert balance.relative < 1e-9
    field = solution.gather()
    if field is not None:
        np.testing.assert_allclose(field, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("per_cell", [False, True])
def test_a_mask_is_the_same_in_any_unit_of_length(per_cell):
    mask = np.pad(half_mask(), 3)
    fields = []
    for spacing in (1e-7, 1.0, 1e7):
        domain = m.Domain.from_mask(mask, spacing, per_cell=per_cell)
        problem = m.Problem(domain, "laplace", {}, {"outline": m.Dirichlet(f"x/{spacing}")})
        fields.append(m.solve(problem, rtol=1e-11).field)
    for field in fields[::2]:
        np.testing.assert_allclose(field, fields[1], rtol=0, atol=1e-8)
