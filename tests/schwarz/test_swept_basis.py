"""``P^T S`` of the coarse basis against products with ``S``, on any number of ranks."""

import numpy as np
import pytest
import torch
from media import MEDIA

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.schwarz.condensed.condensed_system import CondensedSystem
from mosaicdd.schwarz.layouts import block_of
from mosaicdd.schwarz.stopwatch import Stopwatch

CELLS = 64, 48
ROUNDING = 1e-9  # eps times a contrast of 1e6, of sums of some hundred numbers


def with_one_channel(nodes, rng):
    """Return a medium most of whose elements are alike."""
    a = np.ones(nodes)
    a[9:12], a[20:30, 17:19] = 1e4, 1e3
    return a


def fast(nodes):
    """Return a flow in which edges have several modes."""
    return {name: np.full(nodes, v) for name, v in (("bx", 300.0), ("by", 100.0))}


@pytest.mark.ranks(1, 2, 3, 4)
@pytest.mark.parametrize("problems", [1, 3])
@pytest.mark.parametrize("name", ["noise", "channels", "one channel", "flow"])
def test_it_is_the_restriction_of_products(ranks, interface_of, name, problems):
    grid, rng = Grid(CELLS, 1 / 64), np.random.default_rng(0)
    block = block_of(ranks, Lattice(grid, Subdomain(16, 16 / 64)), ranks.rank)
    make = {"one channel": with_one_channel, "flow": lambda nodes, _: np.ones(nodes)} | MEDIA
    fields = {"a": make[name](grid.nodes, rng)} | (fast(grid.nodes) if name == "flow" else {})
    medium = Medium({key: Field(key, values) for key, values in fields.items()})
    kind = {"device": torch.device("cpu"), "dtype": torch.float64}
    system = CondensedSystem(ranks, block, medium, None, Stopwatch(), **kind)
    z, r = (
        torch.cat(
            [
                interface_of(block, rng.standard_normal(grid.nodes)).flat.view(1, -1)
                for _ in range(problems)
            ]
        )
        for _ in range(2)
    )
    z *= system.inside  # no values on the sides of the domain
    kept, made = system.coarse.solve(r, z), system.coarse.solve(r - system.operator(z))
    assert abs(kept - made).max() < ROUNDING * abs(made).max()
