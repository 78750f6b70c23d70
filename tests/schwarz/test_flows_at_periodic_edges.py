"""Flows through sides whose parts meet at a periodic edge: a node there and its copy are one unknown."""

import numpy as np
import pytest

import mosaicdd as m

N = 32
TIGHT = {"rtol": 1e-11}
# What an iteration to 1e-11 leaves of a sum over some thousand nodes.
LEFT = 1e-8

RESTS = {
    "insulated": m.Neumann(0.0),
    "flux": m.Neumann(1.0),
    "exchange": m.Robin(2.0, 1.0),
    "value": m.Dirichlet(0.5),
}


def _parts(rest, axes=2):
    """Return conditions with a pair of periodic sides, across which a value meets something else."""
    sides = {"top": m.Periodic(), "bottom": m.Periodic(), "left": m.Robin(1.0, 0.0)}
    if axes == 3:
        sides |= {"back": m.Periodic(), "front": m.Periodic()}
    across = ", :" if axes == 3 else ""
    return sides | {f"right[0:0.5{across}]": m.Dirichlet(1.0), f"right[0.5:{across}]": rest}


def _mask():
    cells = np.ones((N, N), bool)
    cells[8:20, 10:18] = False
    return m.Domain.from_mask(cells, 1 / N, per_cell=True)


def problems():
    square = m.Domain((N, N), 1 / N)
    for name, rest in RESTS.items():
        yield name, m.Problem(square, "diffusion", {"f": 1.0}, _parts(rest))
    flux, box = RESTS["flux"], m.Domain((16, 16, 16), 1 / 16)
    yield "box", m.Problem(box, "diffusion", {"f": 1.0}, _parts(flux, 3))
    cells = m.Problem(_mask(), "diffusion", {"f": 1.0}, _parts(flux) | {"outline": flux})
    yield "cells", cells
    a = np.random.default_rng(0).uniform(0.1, 10.0, (N, N))
    yield "medium", m.Problem(square, "diffusion", {"a": a, "f": 1.0, "c": 0.3}, _parts(flux))
    yield "oblong", m.Problem(m.Domain((N, N), (0.1, 0.03)), "diffusion", {"f": 1.0}, {
        "left": m.Periodic(), "right": m.Periodic(), "bottom[0:0.3]": m.Dirichlet(1.0), "bottom": flux, "top": m.Robin(1.0, 0.0)
    })  # fmt: skip
    yield "nonlinear", m.Problem(square, "quasilinear-diffusion", {"k": "1 + u**2", "f": 1.0}, _parts(flux))  # fmt: skip
    held = {"pole": m.Held([(0.5, 1.0)], 0.3), "wall": m.Held([(1.0, 0.9)], 0.3)}
    yield "held", m.Problem(square, "diffusion", {"f": 1.0}, _parts(flux) | held)


EVERY = dict(problems())


@pytest.mark.ranks(1, 2, 3, 4)
@pytest.mark.parametrize("name", EVERY)
def test_what_flows_in_flows_out(name, comm):
    solution = m.solve(EVERY[name], ranks=comm, **TIGHT)
    assert solution.converged
    balance = solution.balance()
    assert balance.relative < LEFT
    sides = [side for side in balance.flows if "[" not in side]
    flows = [solution.flow(side) for side in sides]
    np.testing.assert_allclose(flows, [balance.flows[side] for side in sides], atol=LEFT)


@pytest.mark.ranks(1, 2)
def test_parts_of_a_side_are_all_of_it(comm):
    solution = m.solve(EVERY["flux"], ranks=comm, **TIGHT)
    # All that is made, and comes in by a flux, but for what leaves at the left.
    assert solution.flow("right") == pytest.approx(1.0 - solution.flow("left"), abs=LEFT)
    assert solution.flow("right", (0.5, 1.0)) == pytest.approx(-0.5, abs=LEFT)
    parts = [solution.flow("right", ends) for ends in ((0.0, 0.2), (0.2, 0.5), (0.5, 1.0))]
    assert sum(parts) == pytest.approx(solution.flow("right"), abs=LEFT)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("rest", RESTS)
def test_a_march_balances(rest, comm):
    problem = m.Problem(m.Domain((N, N), 1 / N), "heat", {"f": 1.0}, _parts(RESTS[rest]))
    series = m.march(problem, 0.0, dt=0.05, steps=4, ranks=comm, solver_share=0, **TIGHT)
    assert series.balance().relative < LEFT


def _voxels(kind):
    """Return a problem of voxels that end at one of two periodic sides, in faces with a condition."""
    voxels = np.ones((16, 16, 16), bool)
    voxels[4:10, 3:8, -1] = False
    voxels[6:12, 9:13, 0] = False
    sides = {"left": m.Periodic(), "right": m.Periodic(), "bottom": m.Dirichlet(0.0), "top": m.Neumann(1.0)}  # fmt: skip
    sides |= {"back": m.Neumann(0.0), "front": m.Robin(1.0, 0.5), "outline": kind}
    return m.Problem(m.Domain.from_mask(voxels, 1 / 16), "diffusion", {"f": 1.0}, sides)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("kind", [m.Dirichlet(0.5), m.Neumann(1.0), m.Robin(2.0, 1.0)])
def test_voxels_that_end_at_a_periodic_side_balance(kind, comm):
    solution = m.solve(_voxels(kind), ranks=comm, **TIGHT)
    assert solution.converged
    balance = solution.balance()
    assert balance.relative < LEFT
    if isinstance(
        kind, m.Neumann
    ):  # through all faces of the two hollows, those at the sides once each
        faces = sum(2 * (a * b + a + b) for a, b in ((6, 5), (6, 4)))
        assert solution.flow("outline") == pytest.approx(-faces / 16**2, abs=LEFT)
