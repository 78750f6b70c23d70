"""What points are evaluated from, of any number of axes: perimeters, and values on the edge."""

import itertools

import numpy as np
import pytest
import torch

from mosaicdd.grid.grid import Grid, perimeter_nodes
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.schwarz.block import Block
from mosaicdd.schwarz.fill import perimeters_at
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.lattice import Lattice

S = 2  # cells between lattice planes


@pytest.mark.parametrize("cells", [(5,), (4, 5), (4, 3, 5)])
def test_perimeters_around_centres_are_slices_of_the_field(cells):
    lattice = Lattice(Grid(tuple(S * n for n in cells), 0.5), Subdomain(2 * S, S))
    field = np.random.default_rng(0).standard_normal(lattice.grid.nodes)
    block = Block(lattice, (2,) * len(cells), cells)  # begins within the domain
    interface = Interface(block, device=torch.device("cpu"), dtype=torch.float64, problems=2)
    interface.take(torch.from_numpy(np.stack([field, -field])[:, *block.nodes]))
    centres = np.array(list(itertools.product(*(range(2, n) for n in cells))))
    found = perimeters_at(interface, 1, centres)
    around = perimeter_nodes((2 * S,) * len(cells))
    for values, centre in zip(found.numpy(), centres, strict=True):
        np.testing.assert_array_equal(values, -field[tuple((around + S * (centre - 1)).T)])
