"""Conditions on parts of the sides of a box: beside equations put together apart, second order, on ranks."""

import itertools
import re

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import mosaicdd as m
from mosaicdd.schwarz.local_solvers.exact import Exact

STEPS = (0.15, 0.1, 0.12)  # of z, y and x
CELLS = (8, 10, 9)
DOMAIN = m.Domain(CELLS, dict(zip("zyx", STEPS, strict=True)))

# Ends at multiples of a tenth of a cell, so that sampling a side tells areas exactly.
SIDES = {
    "left[0.23:0.71, :0.54]": m.Robin(5.0, 2.0),  # of y, of z
    "left[0.71:, 0.3:1.02]": m.Neumann("1 + y*z"),
    "left": m.Neumann(0.2),
    "back[0.36:0.6, 0.4:0.7]": m.Dirichlet("x"),  # of x, of y
    "back": m.Robin(1.0, 0.3),
    "front[:, 0.33:]": m.Dirichlet(2.0),
    "front": m.Neumann(-0.5),
    "top": m.Dirichlet("z"),
    "right": m.Neumann(0.0),
    "bottom": m.Neumann(0.0),
}


def sampled(name, each=20):
    """Return the area of a part that the nodes of its side have, from many places in each cell, ``(..)``."""
    axis = {"left": 2, "back": 0, "front": 0}[name.partition("[")[0]]
    across = [a for a in range(3) if a != axis]
    lines = []
    for a, text in zip(across, reversed(re.search(r"\[(.*)\]", name)[1].split(",")), strict=True):
        low, high = (
            float(end or fill)
            for end, fill in zip(text.strip().split(":"), ("-inf", "inf"), strict=True)
        )
        at = (np.arange(CELLS[a] * each) + 0.5) / each
        held = (at * STEPS[a] > low) & (at * STEPS[a] < high)
        nodes = np.rint(at).astype(int)
        lines.append(np.bincount(nodes, held / each, CELLS[a] + 1) * STEPS[a])
    return np.multiply.outer(*lines)


def put_together(f):
    """Return the field by a sparse factorisation of Kronecker sums, parts as `sampled` has them."""
    lengths = [h * np.r_[0.5, np.ones(n - 1), 0.5] for n, h in zip(CELLS, STEPS, strict=True)]
    nodes = tuple(n + 1 for n in CELLS)
    number = np.arange(np.prod(nodes)).reshape(nodes)
    matrix = 0
    for axis, (n, h) in enumerate(zip(CELLS, STEPS, strict=True)):
        steps = scipy.sparse.diags_array(
            [np.full(n, -1.0), np.full(n, 1.0)], offsets=[0, 1], shape=(n, n + 1)
        )
        parts = [scipy.sparse.diags_array(values) for values in lengths]
        parts[axis] = steps.T @ steps / h
        matrix = matrix + scipy.sparse.kron(scipy.sparse.kron(parts[0], parts[1]), parts[2])
    z, y, x = (h * i for h, i in zip(STEPS, np.indices(nodes), strict=True))
    b = f * np.einsum("i,j,k->ijk", *lengths)
    alpha = np.zeros(nodes)
    whole = {a: np.multiply.outer(*[lengths[o] for o in range(3) if o != a]) for a in range(3)}
    robin, flux = sampled("left[0.23:0.71, :0.54]"), sampled("left[0.71:, 0.3:1.02]")
    alpha[:, :, 0] += 5.0 * robin
    b[:, :, 0] += 2.0 * robin + (1 + y * z)[:, :, 0] * flux + 0.2 * (whole[2] - robin - flux)
    value, held = sampled("back[0.36:0.6, 0.4:0.7]"), sampled("front[:, 0.33:]")
    alpha[0] += whole[0] - value
    b[0] += 0.3 * (whole[0] - value)
    b[-1] += -0.5 * (whole[0] - held)
    given = np.full(nodes, np.nan)
    given[0, 4:8, 3:6] = x[0, 4:8, 3:6]
    given[-1, 4:] = 2.0  # y from 0.33: nodes 0.4 on
    given[:, -1] = z[:, -1]
    given[-1, -1] = (2.0 + z[-1, -1]) / 2  # two claim it
    free, known = (np.flatnonzero(test(given)) for test in (np.isnan, np.isfinite))
    matrix = (matrix + scipy.sparse.diags_array(alpha.ravel())).tocsr()
    u = given.ravel()
    u[free] = scipy.sparse.linalg.spsolve(
        matrix[free][:, free].tocsc(), b.ravel()[free] - matrix[free][:, known] @ u[known]
    )
    return u.reshape(number.shape)


def solved(ranks=None, sides=SIDES, **settings):
    problem = m.Problem(DOMAIN, "poisson", {"f": 1.5}, sides)
    return m.solve(problem, Exact(4), ranks=ranks, rtol=1e-11, **settings)


def test_equations_are_those_put_together_apart():
    solution = solved()
    assert solution.converged
    assert abs(solution.field - put_together(1.5)).max() < 1e-9


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_any_number_of_ranks_gives_the_same_field_and_flows(comm, by_one, common_path):
    def told(solution):
        names = [*SIDES, "left[0.3:0.5, 0.2:0.9]"]
        return solution.gather(), np.array([solution.flow(name) for name in names])

    field, flows = by_one(lambda: told(solved()))
    together = solved(comm, output=common_path / "parts.h5")
    mine = told(together)
    assert abs(mine[0] - field).max() < 1e-11 * abs(field).max()
    np.testing.assert_allclose(mine[1], flows, atol=1e-9)
    assert together.balance().relative < 1e-8
    stored = m.read(common_path / "parts.h5")
    assert stored.flow("left[0.3:0.5, 0.2:0.9]") == pytest.approx(flows[-1], abs=1e-9)


def test_flows_through_parts_are_areas_times_fluxes_and_add_up():
    solution = solved()
    area = (1.0 - 0.71) * (1.02 - 0.3)
    assert solution.flow("left[0.75:0.8, 0.3:0.6]") == pytest.approx(
        solution.flow("left[0.75:0.8, 0.3:0.45]") + solution.flow("left[0.75:0.8, 0.45:0.6]")
    )
    mean = 1 + (0.71 + 1.0) / 2 * (0.3 + 1.02) / 2
    assert solution.flow("left[0.71:1, 0.3:1.02]") == pytest.approx(-area * mean, rel=0.01)
    pieces = [f"left[{y}, {z}]" for y, z in itertools.product((":0.4", "0.4:"), (":0.77", "0.77:"))]
    assert sum(map(solution.flow, pieces)) == pytest.approx(solution.flow("left"))
    assert solution.flow("front[:, :0.3]") == pytest.approx(0.5 * 0.3 * 1.08)


def u(x, y, z):
    """Return the manufactured solution."""
    return np.exp(x / 2) * np.sin(2 * y) * np.cos(z) + x * z


@pytest.mark.parametrize(
    ("name", "condition", "says"),
    [
        ("left[0:0.5]", m.Neumann(), "of a side along y and z needs 2 intervals, got 1: as in left[0:0.5, :0.3]"),
        ("back[:, :, 0:1]", m.Neumann(), "of a side along x and y needs 2 intervals, got 3"),
        ("left[0:0.5, 0.3:0.2]", m.Neumann(), "must go from a number to a larger one"),
        ("front[0:0.5, -1:0]", m.Neumann(), "reaches beyond the side, which goes from 0, 0 to 1.08, 1"),
        ("right[0.01:0.05, :]", m.Dirichlet(), "holds no node, so its value would have no effect: nodes are 0.1x0.15 apart"),
        ("left[0.5:, 0.5:]", m.Robin(1.0), "the sides left[0.23:0.71, :0.54] and left[0.5:, 0.5:] overlap"),
    ],
)  # fmt: skip
def test_what_is_no_part_is_refused_in_a_line(name, condition, says):
    with pytest.raises(ValueError, match=re.escape(says)) as raised:
        solved(sides=SIDES | {name: condition})
    assert "\n" not in str(raised.value)
