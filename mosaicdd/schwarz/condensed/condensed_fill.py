"""The field of a medium from its interface, strip by strip, and its residual by the way."""

from collections.abc import Iterator

from mosaicdd.lattice.interface import Interface
from mosaicdd.local_solvers.elements.condensed import NodeSource
from mosaicdd.schwarz.condensed.condensed_system import CondensedSystem
from mosaicdd.schwarz.fill import Strip


def fill_strips(
    system: CondensedSystem, v: Interface, source: NodeSource | None
) -> Iterator[Strip]:
    """Yield this rank's part of the field from below, in strips with a node more all around.

    Without what is a copy along periodic axes.

    Parameters
    ----------
    source
        At the nodes of the region; None for zero.
    """
    block, s = v.block, v.block.lattice.spacing
    (rows, columns), (_, place) = block.owned_unknowns()
    across = slice(max(columns.start - 1, 0), min(columns.stop + 1, block.cells[1] + 1))
    inner = slice(columns.start - across.start, columns.stop - across.start)
    before, done = v.lines[0][:, :1], rows.start
    for strip, values in system.elements.fill(v.lines, source):
        bottom, top = strip.start * s, strip.stop * s
        values[:, :1] = before
        base = bottom - 1  # the row of the region that stands first
        last = min(top if top < block.cells[0] else top + 1, rows.stop)
        before = values[:, -2:-1].clone()  # whoever takes the strip may change it
        if last <= done:
            continue
        low, high = max(done - 1, 0), min(last + 1, block.cells[0] + 1)
        yield Strip(
            values=values[:, low - base : high - base, across],
            inner=(slice(done - low, last - low), inner),
            place=(slice(block.origin[0] + done, block.origin[0] + last), place),
        )
        done = last
