"""Domains of voxels in space: beside equations put together voxel by voxel, on ranks, with floating parts."""

import re

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.schwarz.local_solvers.exact import Exact

STEPS = (0.15, 0.1, 0.12)  # of z, y and x


def porous(shape, share=0.6, seed=3):
    """Return a rough mask with parts that are one voxel thick, and touch in edges and corners."""
    mask = np.random.default_rng(seed).random(shape) < share
    mask[:, :, :2] = True
    return mask


CASES = {
    "values": {"outline": m.Dirichlet(2.0)} | {s: m.Dirichlet(1.0) for s in ("left", "right")},
    "insulated": {"outline": m.Neumann(0.0), "left": m.Dirichlet(1.0)},
    "exchange": {"outline": m.Robin(3.0, 0.7), "right": m.Neumann(0.4)},
    "parts": {
        "outline": m.Neumann(0.2),
        "outline[z/2 > 0.4]": m.Robin(5.0, 2.0),
        "outline[(z > 0.6) & (x < 0.7)]": m.Dirichlet(2.5),
    },
    "parts of sides": {
        "outline": m.Neumann(0.0),
        "left[0.2:0.5, 0.3:]": m.Robin(4.0, 2.0),
        "right[:0.4, 0.3:0.9]": m.Neumann(-0.7),
    },
}


def solved(mask, sides, a=None, ranks=None, **fields):
    sides = {s: m.Neumann(0.0) for s in ("left", "right", "bottom", "top", "back", "front")} | sides
    fields = {"a": 1.0 if a is None else a, **fields}
    problem = m.Problem(m.Domain.from_mask(mask, STEPS), "diffusion", fields, sides)
    return m.solve(m.without_floating(problem), Exact(16), ranks=ranks, rtol=1e-11)


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_any_number_of_ranks_gives_the_same_field(comm, by_one):
    """Of a rough mask of which half of the box is empty, so some ranks have little."""
    mask = porous((17, 20, 19))
    mask[9:, 8:] = False
    a = np.where(mask, 1.0 + 30 * (np.random.default_rng(2).random(mask.shape) < 0.2), 0.0)
    sides = CASES["parts"] | {"left": m.Dirichlet("y + z")}
    alone = by_one(lambda: solved(mask, sides, a, f="x*y").field)
    together = solved(mask, sides, a, ranks=comm, f="x*y").gather()
    np.testing.assert_array_equal(np.isnan(together), np.isnan(alone))
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-10 * np.nanmax(np.abs(alone)))


def two_parts():
    """Return a bar from left to right, and two parts beside it that nothing touches."""
    mask = np.zeros((10, 10, 12), bool)
    mask[:3, :4] = True
    mask[6:8, 6:8, 3:7] = True
    mask[6, 3, 5] = True
    return mask


def test_parts_that_float_are_named_or_left_out():
    mask = two_parts()
    natural = dict.fromkeys(["right", "bottom", "top", "back", "front", "outline"], m.Neumann(0.0))
    sides = {"left": m.Dirichlet(1.0)} | natural
    problem = m.Problem(m.Domain.from_mask(mask, 0.5), "poisson", {"f": 1.0}, sides)
    said = (
        "part 2 of the 3 parts of the domain, 1 voxels from (2.5, 1.5, 3) on, has no given value and no exchange, so "
        "its level is not known; 2 parts are like that, 10.56% of its voxels"
    )
    with pytest.raises(ValueError, match=re.escape(said)):
        m.solve(problem)
    held = m.without_floating(problem)
    assert held.domain.shape.left_out == pytest.approx(17 / 161)
    assert str(held.domain).endswith("10.56% left out)")
    bar = m.solve(m.Problem(m.Domain((3, 4, 12), 0.5), "poisson", {"f": 1.0}, {k: v for k, v in sides.items() if k != "outline"}))  # fmt: skip
    field = m.solve(held).field
    np.testing.assert_allclose(field[:4, :5], bar.field, rtol=1e-6)
    assert np.isnan(field).sum() == field.size - bar.field.size
    # An exchange, a value or a reaction holds a part.
    for more in ({"outline[z > 2]": m.Robin(1.0, 0.0)}, {"outline[z > 2]": m.Dirichlet(0.0)}):
        assert m.solve(problem.with_sides(sides | more)).converged
    reacting = m.Problem(problem.domain, "screened-poisson", {"f": 1.0, "c": 2.0}, sides)
    assert m.without_floating(reacting) is reacting
    assert m.solve(reacting).field[7, 7, 4] == pytest.approx(0.5)


def test_where_nothing_holds_data_must_fit_and_the_mean_is_zero():
    mask = porous((9, 9, 9), 0.75)
    mask[1:3, :, 3:] = True
    sides = dict.fromkeys(["bottom", "top", "back", "front", "outline"], m.Neumann(0.0))
    areas = mask[:, :, 0].sum(), mask[:, :, -1].sum()
    problem = m.Problem(m.Domain.from_mask(mask, 0.1), "laplace")
    flows = {"left": m.Neumann(1.0), "right": m.Neumann(-areas[0] / areas[1])}
    solution = m.solve(problem.with_sides(sides | flows))
    assert solution.flow("right") == pytest.approx(areas[0] * 0.01)
    assert abs(solution.mean()) < 1e-6 * np.nanmax(solution.field)
    with pytest.raises(ValueError, match=r"of the sources and fluxes are left over"):
        m.solve(problem.with_sides(sides | flows | {"right": m.Neumann(0.0)}))


@pytest.mark.ranks(1, 2, 3)
def test_an_outline_goes_on_at_periodic_sides(comm, by_one):
    """Cut at another place the same medium has the same field."""
    mask = porous((12, 10, 11), 0.7)
    mask[:, :, :2] = np.random.default_rng(9).random((12, 10, 2)) < 0.7
    mask[0] = True
    around = dict.fromkeys(["left", "right", "bottom", "top"], m.Periodic())
    sides = around | {
        "back": m.Dirichlet(0.0),
        "front": m.Neumann(0.0),
        "outline": m.Robin(0.5, 1.0),
    }

    def field(mask, ranks=None):
        problem = m.Problem(m.Domain.from_mask(mask, 0.1), "poisson", {"f": 1.0}, sides)
        return m.solve(m.without_floating(problem), Exact(16), ranks=ranks, rtol=1e-11)

    whole = field(mask, comm).gather()[:, :-1, :-1]
    rolled = by_one(lambda: field(np.roll(mask, (3, 4), (1, 2))).field)[:, :-1, :-1]
    np.testing.assert_allclose(np.roll(whole, (3, 4), (1, 2)), rolled, rtol=0, atol=1e-9)


@pytest.mark.ranks(1, 2)
def test_what_flows_in_flows_out_by_parts(comm):
    mask = porous((12, 11, 13))
    solution = solved(mask, CASES["parts"], ranks=comm, f=2.0)
    assert solution.balance().relative < 1e-8
    names = ["outline[z/2 > 0.4]", "outline[(z > 0.6) & (x < 0.7)]", "outline"]
    robin, value, every = (solution.flow(name) for name in names)
    assert robin != 0 != value
    source = 2.0 * np.prod(STEPS) * mask.sum()
    assert every < source  # of the nodes with given values none counts


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda: m.Domain.from_mask(np.ones((3, 4, 5)) * 0.5), "the mask is true or false"),
        (lambda: m.Domain.from_mask(np.zeros((3, 4, 5), bool)), "there is no domain"),
        (lambda: m.Domain.from_mask(np.ones((3, 4, 5), bool), per_cell=False), "per voxel"),
        (
            lambda: m.Domain((3, 4, 6), shape=m.Domain.from_mask(np.ones((3, 4, 5), bool)).shape),
            "the mask has 5x4x3 voxels, the domain 6x4x3 cells",
        ),
        (
            lambda: m.Problem(
                m.Domain.from_mask(np.ones((3, 4, 5), bool)), "laplace",
                sides={"outline[z >]": m.Neumann(0.0)},
            ),
            "cannot read the expression",
        ),
        (
            lambda: m.Problem(
                m.Domain.from_mask(np.ones((3, 4, 5), bool)), "diffusion", {"a": np.ones((5, 4, 3))}
            ),
            r"the shape \(5, 4, 3\), the grid has \(4, 5, 6\) nodes .* in the order \(x, y, z\)",
        ),
    ],
)  # fmt: skip
def test_what_is_no_domain_is_refused(give, said):
    with pytest.raises(ValueError, match=said):
        give()
