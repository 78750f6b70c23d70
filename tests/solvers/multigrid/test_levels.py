"""Conductors whose level float64 tells, or does not."""

import numpy as np
import pytest
from mpi4py import MPI

import mosaicdd as m

N = 48
BESIDE = {
    "left": m.Dirichlet(0.0),
    "right": m.Dirichlet(1.0),
    "bottom": m.Neumann(0.0),
    "top": m.Neumann(0.0),
}
REFUSED = r"a conductor at node \(16, 12\) is joined to given values by less than 1e-13"


def solved(a, sides=BESIDE, **given):
    """Return a rank's values of what crosses a medium, with where they are."""
    solution = m.solve(
        m.Problem((N, N), "diffusion", {"a": a, **given}, sides), ranks=MPI.COMM_WORLD
    )
    assert solution.converged
    return solution.local, solution.place


def with_block(around, inside):
    """Return a medium with a block of another one."""
    a = np.full((N + 1, N + 1), float(around))
    a[16:33, 12:29] = inside
    return a


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_what_float64_tells_is_right_and_what_it_does_not_is_refused():
    # The less joins it, the closer its level is to one that depends on the shape of what joins it alone.
    values, _ = solved(with_block(1e-6, 1.0))
    limit, _ = solved(with_block(1e-9, 1.0))
    within, _ = solved(with_block(1e-12, 1.0))
    np.testing.assert_allclose(within, limit, rtol=0, atol=1e-4)
    np.testing.assert_allclose(values, limit, rtol=0, atol=1e-4)
    with pytest.raises(m.Unsupported, match=REFUSED):
        solved(with_block(1e-16, 1.0))


def test_an_insulator_of_any_kind_has_values_of_what_is_around_it():
    values, _ = solved(with_block(1.0, 1e-18))
    limit, _ = solved(with_block(1.0, 1e-9))
    np.testing.assert_allclose(values, limit, rtol=0, atol=1e-7)


def test_a_reaction_or_a_held_value_tells_the_level():
    a = with_block(1e-16, 1.0)
    values, _ = solved(a, c=np.where(a == 1.0, 1.0, 0.0), f=np.where(a == 1.0, 2.0, 0.0))
    assert values[24, 20] == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize(("resistance", "told"), [(1e9, True), (1e16, False), (1e60, False)])
def test_between_two_foils_of_a_large_resistance(resistance, told):
    foils = [m.Foil([(x, 0.0), (x, N / 64)], resistance=resistance) for x in (0.2578125, 0.5078125)]
    a = m.Foils(foils, 1.0)
    if told:
        assert solved(a)[0][24, 24] == pytest.approx(0.5, abs=1e-4)
    else:
        with pytest.raises(m.Unsupported, match="float64 tells no level"):
            solved(a)
