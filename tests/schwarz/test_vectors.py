"""Vectors of Krylov iterations: where they lie, the interfaces of them, and their inner products over ranks."""

import numpy as np
import pytest
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.schwarz.condensed.inner_products import InnerProducts
from mosaicdd.schwarz.condensed.interface_operator import region_interior
from mosaicdd.schwarz.condensed.vectors import Vectors


@pytest.mark.parametrize("problems", [1, 3])
def test_vectors_lie_in_the_room_while_it_lasts(make_lattice, cpu, problems):
    block = Block.whole(make_lattice((4, 5)))
    size = Vectors(block, **cpu).size * problems
    room = torch.zeros(2 * size + 20, dtype=torch.float64)[1:]
    vectors = Vectors(block, problems=problems, room=room, **cpu)
    made = [vectors.new() for _ in range(3)]
    assert [one.shape for one in made] == 3 * [(problems, size // problems)]
    for number, one in enumerate(made):
        assert one.data_ptr() % 64 == 0
        one.fill_(number + 1.0)
    assert [int((room == value).sum()) for value in (1, 2, 3)] == [size, size, 0]


@pytest.mark.parametrize("problems", [1, 3])
def test_interfaces_and_vectors_have_the_same_values(make_lattice, cpu, problems):
    block = Block.whole(make_lattice((4, 5)))
    vectors = Vectors(block, problems=problems, **cpu)
    rng = np.random.default_rng(0)
    v = Interface(block, problems=problems, **cpu)
    v.flat.copy_(torch.from_numpy(rng.standard_normal(len(v.flat))))
    v.match_copies()
    x = vectors.of(v)
    for lines, own in zip(vectors.lines(x), v.lines, strict=True):
        assert torch.equal(lines, own)
    other = vectors.interface(x)
    assert torch.equal(other.flat, v.flat)
    assert other.flat.data_ptr() != v.flat.data_ptr()
    assert torch.equal(vectors.at_nodes(x), v.nodes())
    room = vectors.room_of(x)
    assert room.flat.data_ptr() == x.data_ptr()
    assert not room.flat.any()


@pytest.mark.parametrize("problems", [1, 3])
@pytest.mark.parametrize("cells", [(2, 2), (4, 5)])
def test_values_at_nodes_are_copies(make_lattice, cpu, cells, problems):
    vectors = Vectors(Block.whole(make_lattice(cells)), problems=problems, **cpu)
    x = vectors.new().fill_(1.0)
    nodes = vectors.at_nodes(x)
    assert nodes.shape == (problems, cells[0] - 1, cells[1] - 1)
    x.fill_(2.0)
    assert (nodes == 1.0).all()


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("problems", [1, 2])
def test_inner_products_count_each_node_once(
    make_lattice, make_ranks, all_dims, block_of, cpu, interface_of, problems
):
    lattice = make_lattice((7, 8))
    fields = np.random.default_rng(0).standard_normal((2, problems, *lattice.grid.nodes))
    s = lattice.spacing
    counted = np.zeros(lattice.grid.nodes)
    counted[s:-1:s, 1:-1] = counted[1:-1, s:-1:s] = 1.0
    wanted = (fields[0] * fields[1] * counted).sum(axis=(1, 2))
    for dims in all_dims:
        ranks = make_ranks(dims)
        block = block_of(ranks, lattice)
        inside = torch.from_numpy(region_interior(block))
        vectors = Vectors(block, problems=problems, **cpu)
        x, y = (torch.stack([interface_of(block, one).flat for one in some]) for some in fields)
        found = InnerProducts(ranks, vectors, inside)
        np.testing.assert_allclose(found((x * inside, y))[0], wanted, rtol=1e-12)
        (squares,), also = found.over_ranks(found.squares(y), (1.0,))
        np.testing.assert_allclose(
            squares, (np.square(fields[1]) * counted).sum(axis=(1, 2)), rtol=1e-12
        )
        assert also == [ranks.size]
