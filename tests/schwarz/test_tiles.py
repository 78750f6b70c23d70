"""Tiles cover the domain once, and every block knows which are its own."""

import numpy as np
import pytest

from mosaicdd.schwarz.block import Block, Tiles, owned_tiles, region_tiles

CELLS = [2, 3, 4, 5, 8, 9]


def covered(runs):
    """List the lattice cells that tiles fill, and for each the subdomain's centre."""
    return [
        (tile.line + cell, tile.line + (1 if tile.cells == 2 else 0))
        for run in runs
        for tile in run.split(1)
        for cell in range(tile.cells)
    ]


@pytest.mark.parametrize("cells", CELLS)
def test_every_lattice_cell_is_filled_once(cells, make_lattice):
    block = Block.whole(make_lattice((cells, 4)))
    runs = region_tiles(block, 0)
    found = covered(runs)
    assert [cell for cell, _ in found] == list(range(cells))
    assert all(centre - 1 <= cell <= centre for cell, centre in found)
    assert owned_tiles(block, 0) == runs


@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize("halo", [1, 2])
def test_blocks_share_the_tiles_of_the_whole(halo, cells, make_lattice):
    lattice = make_lattice((cells, 4))
    whole = dict(covered(region_tiles(Block.whole(lattice), 0)))
    for cut in range(2, cells):
        owned = []
        for start, stop in ((1, cut), (cut, cells)):
            block = Block(lattice, (start, 1), (stop, 4), halo)
            for run in region_tiles(block, 0):
                subdomains = run.subdomains(block, 0)
                centres = np.arange(block.first[0] + 1, block.last[0])[subdomains]
                assert len(centres) == run.count
                for tile, centre in zip(run.split(1), centres, strict=True):
                    assert {whole[tile.line + i] for i in range(tile.cells)} == {centre}
            owned += covered(owned_tiles(block, 0))
            assert all(start <= centre < stop for _, centre in covered(owned_tiles(block, 0)))
        assert sorted(owned) == sorted(whole.items())


def test_a_run_is_cut_into_runs():
    run = Tiles(4, 5)
    assert list(run.split(2)) == [Tiles(4, 2), Tiles(8, 2), Tiles(12, 1)]
    assert list(run.split(9)) == [run]
