"""The fill along a line, in the plane and in space: strips put together are the field; and that of a window, for its work."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mosaicdd import Ranks
from mosaicdd.grid.grid import Grid, perimeter_nodes
from mosaicdd.grid.window import Window
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.schwarz.block import Block
from mosaicdd.schwarz.fill import FILL_HALO, InteriorReconstruction
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.lattice import Lattice
from mosaicdd.schwarz.sweep import SweepContext

S, PROBLEMS = 2, 2  # cells between lattice planes


def known(block, fields):
    """Return what predicts the fields inside of subdomains, and checks what it is given of them."""

    def predict(batch, perimeters, values):
        inside = (slice(1, 2 * S),) * len(batch)
        members = itertools.product(*(range(p.start, p.stop, p.step or 1) for p in batch))
        around = perimeter_nodes((2 * S,) * len(batch))
        corners = [
            [a + S * n for a, n in zip(block.origin, member, strict=True)] for member in members
        ]
        cubes = [
            field[tuple(slice(a, a + 2 * S + 1) for a in corner)]
            for field in fields
            for corner in corners
        ]
        np.testing.assert_array_equal(
            perimeters, np.stack([cube[tuple(around.T)] for cube in cubes])
        )
        values.copy_(torch.from_numpy(np.stack([cube[inside].ravel() for cube in cubes])))

    return predict


@pytest.mark.parametrize("batch_subdomains", [1, 5, 1000])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("cells", [(7,), (6, 7), (6, 5, 4)])
def test_strips_are_the_owned_nodes_of_the_field(cells, kept, batch_subdomains):
    lattice = Lattice(Grid(tuple(S * n for n in cells), 0.5), Subdomain(2 * S, S))
    fields = np.random.default_rng(0).standard_normal((PROBLEMS, *lattice.grid.nodes))
    ends = [((1, n // 2 + 1), (n // 2 + 1, n)) for n in cells]
    seen, tensors = np.full(fields.shape, np.nan), {"device": torch.device("cpu")}
    for parts in itertools.product(*ends):
        block = Block(lattice, *zip(*parts, strict=True), FILL_HALO)
        v = Interface(block, dtype=torch.float64, problems=PROBLEMS, **tensors)
        v.take(torch.from_numpy(fields[:, *block.nodes]))
        settings = SimpleNamespace(
            tensors={**tensors, "dtype": torch.float64}, batch_subdomains=8 * batch_subdomains
        )
        fill = InteriorReconstruction(
            SweepContext(Ranks.alone(), block, settings, PROBLEMS), known(block, fields)
        )
        region = None
        if kept:
            shape = [count + 1 for count in block.cells]
            region = torch.full((PROBLEMS, *shape), torch.nan, dtype=torch.float64)
        for strip in fill.strips(v, region):
            seen[:, *strip.place] = strip.owned.numpy()
            # One node more all around is right, too, where the domain has one.
            wide = tuple(
                slice(p.start - i.start, p.start - i.start + n)
                for p, i, n in zip(strip.place, strip.inner, strip.values.shape[1:], strict=True)
            )
            np.testing.assert_array_equal(strip.values, fields[:, *wide])
    np.testing.assert_array_equal(seen, fields)


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_every_rank_has_its_part_of_the_window(make_lattice, make_solver, problem, make_ranks):
    lattice, window = make_lattice((9, 12)), Window((3, 30), (14, 49))
    boundary, _ = problem(lattice)
    whole = make_solver(lattice).solve(boundary).field.numpy()
    solution = make_solver(lattice, ranks=make_ranks(), window=window).solve(boundary)
    assert solution.place == window.clip(solution.place)
    # Ranks add up in another order: units in the last place of values of order 1.
    np.testing.assert_allclose(solution.field, whole[solution.place], rtol=0, atol=1e-12)
    assert solution.residual is None
    assert solution.discrete_residual is None


def test_the_work_is_that_of_the_window(make_lattice, make_solver, problem, monkeypatch):
    lattice, filled, predict = make_lattice((32, 32)), [], InteriorReconstruction._predict
    boundary, _ = problem(lattice)

    def counting(self, v, tiles, target):
        filled.append(math.prod(run.count for run in tiles))
        predict(self, v, tiles, target)

    monkeypatch.setattr(InteriorReconstruction, "_predict", counting)
    make_solver(lattice, window=Window((40, 40), (49, 49))).solve(boundary)
    # Nodes 40..48 lie, with s = 4, in the lattice cells 10, 11 and 12, and with the nodes around in
    # the cells 9 to 12: the tiles of the cells 8 and 9, 10 and 11, 12 and 13.
    assert sum(filled) == 3 * 3
