"""A field with margins over the ranks: every rank has the right values of the whole, wherever they come from."""

import numpy as np
import pytest
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.field_share import FieldShare

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)
TENSORS = {"device": torch.device("cpu"), "dtype": torch.float64}
# Uneven blocks, a last lattice cell that is not full, and one that comes round.
LATTICES = [((28, 44), (False, False)), ((30, 43), (False, True)), ((26, 45), (True, True))]


def lattice_of(cells, periodic):
    return Lattice.around(Grid(cells, 0.5), Subdomain(8, 4.0), periodic)


def whole(lattice):
    """Return values at all nodes, no two alike; along a periodic axis the last node has the value of the first."""
    values = np.random.default_rng(0).standard_normal(lattice.grid.nodes)
    for axis, around in enumerate(lattice.periodic):
        if around:
            np.moveaxis(values, axis, 0)[-1] = np.moveaxis(values, axis, 0)[0]
    return values


def cut(values, part, lattice):
    """Return what a part that may go on beyond the grid has of the whole."""
    rows = [np.arange(p.start, p.stop) for p in part]
    around = zip(rows, lattice.rounds, strict=True)
    return values[np.ix_(*(at if period is None else at % period for at, period in around))]


@pytest.mark.parametrize("beyond", [True, False])
@pytest.mark.parametrize(("cells", "periodic"), LATTICES)
def test_what_is_held_is_that_part_of_the_whole(ranks, cells, periodic, beyond):
    lattice = lattice_of(cells, periodic)
    placed = ranks.fitted(lattice.subdomains)
    share, values = FieldShare(placed, lattice, 5, beyond=beyond), whole(lattice)
    held = share.widened(values[share.own])
    np.testing.assert_array_equal(held, cut(values, share.wide, lattice))
    np.testing.assert_array_equal(share.owned(held), values[share.own])
    inside = all(
        p.start >= 0 and p.stop <= n for p, n in zip(share.wide, values.shape, strict=True)
    )
    assert inside or beyond
    for own, wide, nodes in zip(share.own, share.wide, values.shape, strict=True):
        assert wide.start <= max(own.start - 5, 0)
        assert wide.stop >= min(own.stop + 5, nodes)


def test_values_of_two_periodic_sides_may_differ_within_the_grid(ranks):
    """As those of a source that jumps there."""
    lattice = lattice_of((30, 43), (False, True))
    share = FieldShare(ranks.fitted(lattice.subdomains), lattice, 5, beyond=False)
    values = np.random.default_rng(0).standard_normal(lattice.grid.nodes)
    np.testing.assert_array_equal(share.widened(values[share.own]), values[share.wide])


@pytest.mark.parametrize("beyond", [True, False])
@pytest.mark.parametrize(("cells", "periodic"), LATTICES)
def test_lines_are_those_of_the_whole_lattice_and_back(ranks, cells, periodic, beyond):
    lattice = lattice_of(cells, periodic)
    placed = ranks.fitted(lattice.subdomains)
    width = 2 * lattice.spacing
    share, values = FieldShare(placed, lattice, width, beyond=beyond), whole(lattice)
    alone = FieldShare(Ranks.alone(), lattice, width)
    everything = alone.lines([alone.widened(values)], **TENSORS)
    v = share.lines([share.widened(values[share.own])], **TENSORS)
    np.testing.assert_array_equal(v.flat, everything.part(share.block).flat)
    if beyond:
        between = share.between_lines(v)
        again = share.lines([between], **TENSORS)
        # Sums of three terms of size 3, and of nodes between those of the grid their means.
        np.testing.assert_allclose(again.flat, v.flat, rtol=0, atol=40 * np.finfo(float).eps)
