"""The lattice along a line, in the plane and in space: one code, checked against whole fields."""

import itertools
import math

import numpy as np
import pytest
import torch

from mosaicdd.axes import frame
from mosaicdd.grid.grid import Grid, perimeter_nodes
from mosaicdd.grid.window import Window, interpolate
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.parallel.halo import directions
from mosaicdd.schwarz.block import Block, Lattice
from mosaicdd.schwarz.fill import covers, owned_points
from mosaicdd.schwarz.interface import Interface, interface_received, interface_sent
from mosaicdd.schwarz.transfer import Coarsening, Transfer, batches

KIND = {"device": torch.device("cpu"), "dtype": torch.float64}
CELLS = [(5,), (4, 5), (4, 3, 5)]  # lattice cells per axis
ROUNDINGS = 5 * 8 * 2.3e-16  # sums of 8 products of numbers below 5, a rounding each


def lattice_of(cells, s=2, **options):
    spacing = 0.125
    return Lattice(
        Grid(tuple(k * s for k in cells), spacing),
        Subdomain(2 * s, 2 * s * spacing, len(cells)),
        **options,
    )


def field_of(lattice, seed=0):
    return np.random.default_rng(seed).uniform(-5, 5, lattice.grid.nodes)


def interface_of(block, field):
    interface = Interface(block, **KIND)
    interface.take(torch.from_numpy(field[block.nodes])[None])
    return interface


def blocks_of(lattice, parts=2):
    """Cut a lattice into blocks, and return them by their coordinates."""
    cuts = [[n * part // parts + 1 for part in range(parts + 1)] for n in lattice.subdomains]
    return {
        place: Block(
            lattice,
            *zip(*((c[i], c[i + 1]) for c, i in zip(cuts, place, strict=True)), strict=True),
        )
        for place in itertools.product(range(parts), repeat=len(cuts))
    }


def on_lines(lattice):
    """Say which nodes inside the domain lie on a lattice line."""
    at = np.indices(lattice.grid.nodes)
    inside = np.all(
        [(i > 0) & (i < n) for i, n in zip(at, lattice.grid.shape, strict=True)], axis=0
    )
    return inside & np.any(at % lattice.spacing == 0, axis=0)


def members(batch):
    return list(itertools.product(*(range(p.start, p.stop, p.step or 1) for p in batch)))


def cube(block, member):
    """Return where a whole field holds one subdomain of a block."""
    s, m = block.lattice.spacing, block.lattice.subdomain.cells
    corner = [a + s * number for a, number in zip(block.origin, member, strict=True)]
    return tuple(slice(first, first + m + 1) for first in corner)


def centres_of(block, batch, field):
    """Return the centre lines of a batch, those constant in the first axis first, ``(B, ..)``."""
    m, axes = block.lattice.subdomain.cells, field.ndim
    values = []
    for member in members(batch):
        inside = field[cube(block, member)][(slice(1, m),) * axes]
        lines = [inside.take(m // 2 - 1, axis).ravel() for axis in range(axes)]
        values.append(np.concatenate(lines))
    return torch.from_numpy(np.stack(values))


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("cells", [2, 3, 4])
def test_a_perimeter_holds_each_node_of_the_surface_once(axes, cells):
    nodes = perimeter_nodes((cells,) * axes)
    surface = [
        node for node in itertools.product(range(cells + 1), repeat=axes) if {0, cells} & set(node)
    ]
    assert sorted(map(tuple, nodes.tolist())) == surface


@pytest.mark.parametrize("cells", CELLS)
def test_the_unknowns_are_the_nodes_on_lines_inside(cells):
    lattice = lattice_of(cells)
    assert lattice.unknowns == on_lines(lattice).sum()
    assert lattice.subdomains == tuple(k - 1 for k in cells)


@pytest.mark.parametrize("cells", CELLS)
def test_over_all_blocks_each_node_of_the_interface_is_owned_once(cells):
    lattice = lattice_of(cells)
    numbers = np.arange(math.prod(lattice.grid.nodes), dtype=float).reshape(lattice.grid.nodes)
    owned = [
        part.flatten()
        for block in blocks_of(lattice).values()
        for part in interface_of(block, numbers).owned_parts()
    ]
    assert sorted(torch.cat(owned).tolist()) == numbers[on_lines(lattice)].tolist()


@pytest.mark.parametrize("cells", CELLS)
def test_copies_of_lattice_nodes_take_the_value_of_the_first_family(cells):
    lattice = lattice_of(cells)
    block, field = Block.whole(lattice), field_of(lattice)
    expected = interface_of(block, field)
    interface = interface_of(block, field)
    for axis in range(1, len(cells)):
        for before in range(axis):
            every = [slice(None)] * len(cells)
            every[before] = slice(None, None, lattice.spacing)
            interface.in_order(axis)[0][tuple(every)] = torch.nan
    interface.match_copies()
    assert torch.equal(interface.flat, expected.flat)


@pytest.mark.parametrize("cells", CELLS)
def test_the_boundary_parts_and_the_inner_parts_are_all(cells):
    block = Block.whole(lattice_of(cells))
    counts = Interface(block, **KIND)
    for axis, lines in enumerate(counts.lines):
        lines[0][block.inner(axis)] += 1
    for axis, part in block.boundary_parts():
        counts.lines[axis][0][part] = 1
    assert (counts.flat == 1).all()


@pytest.mark.parametrize("largest", [1, 5, 1000])
@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize("s", [1, 2, 3])
def test_restriction_is_slicing_at_each_perimeter(cells, s, largest):
    lattice = lattice_of(cells, s)
    field, perimeter = field_of(lattice), perimeter_nodes((2 * s,) * len(cells))
    for block in blocks_of(lattice).values():
        transfer, interface = Transfer(block, **KIND), interface_of(block, field)
        for batch in batches(block.ring(0), largest):
            out = torch.full((len(members(batch)), len(perimeter)), torch.nan, dtype=torch.float64)
            transfer.restrict(interface, batch, out)
            squares = [field[cube(block, member)] for member in members(batch)]
            expected = np.stack([values[tuple(perimeter.T)] for values in squares])
            np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("largest", [1, 5, 1000])
@pytest.mark.parametrize("cells", CELLS)
def test_weighing_and_adding_centre_lines_gives_the_field_on_all_inner_lines(cells, largest):
    lattice = lattice_of(cells)
    block, field = Block.whole(lattice), field_of(lattice)
    transfer, result = Transfer(block, **KIND), Interface(block, **KIND)
    far, hats = Interface(block, **KIND), torch.from_numpy(lattice.hat)
    for _ in range(1, len(cells) - 1):
        hats = hats[:, None] * torch.from_numpy(lattice.hat)
    for batch in batches(block.ring(0), largest):
        values = centres_of(block, batch, field)
        as_far_from_edges = values.clone()
        transfer.weigh(values, batch)
        transfer.add(values, batch, result)
        if len(cells) > 1:
            as_far_from_edges *= hats.ravel().repeat(len(cells))
        transfer.weigh_at_edges(as_far_from_edges, batch)
        transfer.add(as_far_from_edges, batch, far)
    expected = interface_of(block, field)
    for axis, lines in enumerate(expected.lines):
        inner = block.inner(axis)
        for given in (result, far):
            np.testing.assert_allclose(
                given.lines[axis][0, *inner], lines[0, *inner], rtol=0, atol=ROUNDINGS
            )


@pytest.mark.parametrize("cells", CELLS)
def test_what_is_put_to_a_phase_is_taken_again(cells):
    lattice = lattice_of(cells)
    block, field = Block.whole(lattice), field_of(lattice)
    transfer = Transfer(block, **KIND)
    for first in itertools.product((0, 1), repeat=len(cells)):
        part = tuple(slice(f, n) for f, n in zip(first, block.subdomains, strict=True))
        for batch in batches(part, 5, step=2):
            values, interface = centres_of(block, batch, field), Interface(block, **KIND)
            transfer.put(values, batch, interface)
            again = torch.empty_like(values)
            transfer.take(interface, batch, again)
            assert torch.equal(again, values)


@pytest.mark.parametrize("cells", CELLS)
def test_with_what_neighbours_send_each_region_is_the_slice_of_the_field(cells):
    lattice = lattice_of(cells)
    field, blocks, every = field_of(lattice), blocks_of(lattice), directions(len(cells))
    mine = {}
    for place, block in blocks.items():
        transfer, mine[place] = Transfer(block, **KIND), interface_of(block, field).like_boundary()
        for batch in batches(block.ring(0), 1000):
            values = centres_of(block, batch, field)
            transfer.weigh(values, batch)
            transfer.add(values, batch, mine[place])
    total = {place: interface.like(interface.flat.clone()) for place, interface in mine.items()}
    for place, block in blocks.items():
        for direction, opposite in zip(every, reversed(every), strict=True):
            there = tuple(np.add(place, direction))
            if there not in blocks:
                continue
            sent = interface_sent(blocks[there], opposite)
            for (axis, part), (_, source) in zip(
                interface_received(block, direction), sent, strict=True
            ):
                total[place].lines[axis][:, *part] += mine[there].lines[axis][:, *source]
    for place, block in blocks.items():
        expected = interface_of(block, field)
        np.testing.assert_allclose(total[place].flat, expected.flat, rtol=0, atol=ROUNDINGS)


@pytest.mark.parametrize("cells", CELLS)
def test_a_frame_and_what_is_inside_are_all_of_a_box(cells):
    outer = tuple(slice(0, n + 2) for n in cells)
    inner = tuple(slice(1, n) for n in cells)
    counts = np.zeros([part.stop for part in outer], int)
    for part in (inner, *frame(outer, inner)):
        counts[part] += 1
    assert (counts == 1).all()


@pytest.mark.parametrize("cells", CELLS)
def test_blocks_own_each_node_of_a_window_once(cells):
    lattice = lattice_of(cells)
    size = lattice.grid.size
    window = Window.of_extent(lattice.grid, tuple((0.3 * high, 0.8 * high) for high in size))
    counts = np.zeros(lattice.grid.nodes, int)
    for block in blocks_of(lattice).values():
        counts[window.clip(block.owned_nodes()[1])] += 1
    assert (counts[window.place] == 1).all()
    assert counts.sum() == math.prod(window.shape)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_interpolation_is_exact_where_a_field_is_linear_along_each_axis(axes):
    rng = np.random.default_rng(0)
    shape, slopes = (5, 4, 6)[:axes], rng.uniform(-1, 1, (axes, 2))

    def values(*at):
        return math.prod(a + b * x for (a, b), x in zip(slopes, at, strict=True))

    cells = rng.uniform(0, 1, (50, axes)) * (np.array(shape) - 1)
    field = values(*np.indices(shape))
    np.testing.assert_allclose(
        interpolate(field[None], cells)[0],
        values(*cells.T),
        rtol=0,
        atol=np.abs(field).max() * 1e-14,
    )


@pytest.mark.parametrize("cells", CELLS)
def test_each_point_is_owned_once_and_the_weights_of_its_covers_add_up_to_one(cells):
    lattice = lattice_of(cells)
    points = np.random.default_rng(0).uniform(0, 1, (90, len(cells))) * lattice.grid.shape
    points[:20] = np.rint(points[:20])  # nodes, points of lattice lines, and of the edge
    points[20:28, 0] = lattice.spacing * np.rint(points[20:28, 0] / lattice.spacing)
    points[28:30], points[30:32, -1] = lattice.grid.shape, 0.0
    owned, weights = np.zeros(len(points), int), np.zeros(len(points))
    for block in blocks_of(lattice).values():
        mine = np.flatnonzero(owned_points(points, block))
        owned[mine] += 1
        for index, centres, local, shares in covers(points, mine, block):
            weights[index] += shares
            corners = (centres - 1) * lattice.spacing
            np.testing.assert_allclose(corners + local, points[index], rtol=1e-14)
            assert ((centres >= 1) & (centres < lattice.cells)).all()
            assert ((local >= 0) & (local <= lattice.subdomain.cells)).all()
    assert (owned == 1).all()
    np.testing.assert_allclose(weights, 1.0, rtol=0, atol=ROUNDINGS)


@pytest.mark.parametrize("cells", CELLS)
def test_unknowns_at_the_lattice_nodes_are_spread_and_sampled(cells):
    """Blocks touch all unknowns; spread, and sampled from the lines of the coarse lattice, they are the same."""
    lattice = lattice_of(cells)
    coarsening, seen = Coarsening(lattice, 1), set()
    unknowns = torch.from_numpy(np.random.default_rng(1).uniform(-5, 5, (2, coarsening.size)))
    inside = np.pad(unknowns.view(2, *lattice.subdomains).numpy(), [(0, 0), *[(1, 1)] * len(cells)])
    for block in blocks_of(lattice).values():
        coarse = Interface(coarsening.block(block), problems=2, **KIND)
        coarsening.spread(unknowns, coarse)
        expected = Interface(coarse.block, problems=2, **KIND)
        expected.take(torch.from_numpy(inside[:, *coarse.block.nodes]))
        assert torch.equal(coarse.flat, expected.flat)
        touched = coarsening.touched(block)
        seen |= {*touched.tolist()}
        fine = Interface(block, problems=2, **KIND)
        for axis in range(len(cells)):
            every = [slice(None, None, lattice.spacing)] * len(cells)
            every[axis] = slice(None)
            fine.in_order(axis)[:, *every] = coarse.in_order(axis)
        out = torch.empty(2, len(touched), dtype=torch.float64)
        coarsening.sample(fine, out, alone=True)
        assert torch.equal(out, unknowns[:, touched])
    assert len(seen) == coarsening.size


def test_more_coarse_nodes_than_those_of_the_lattice_are_refused_in_space():
    with pytest.raises(ValueError, match=r"2 coarse .* for lattices of 2 axes, this one has 3"):
        Coarsening(lattice_of((4, 3, 5)), 2)
