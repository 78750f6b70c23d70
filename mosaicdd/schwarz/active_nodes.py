"""How many nodes of a shape lie around each lattice node: by that its blocks are cut."""

import math

import numpy as np

from mosaicdd.lattice.lattice import Lattice
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.shapes.shape import Shape

_NODES = 2**21  # of the grid, looked at together


def active_nodes(shape: Shape, lattice: Lattice, ranks: Ranks) -> np.ndarray:
    """Count the nodes inside a shape that are nearest to each subdomain's centre; all ranks together.

    Every rank looks at its share of the grid.
    Returns ``lattice.subdomains``, integers.
    """
    rows, *across = (_nearest(lattice, axis) for axis in range(len(lattice.cells)))
    row = math.prod(ends[-1] for ends in across)

    def count() -> np.ndarray:
        counts = np.zeros(lattice.subdomains)
        mine, step = ranks.share(len(counts)), max(1, _NODES // (lattice.spacing * row))
        for first in range(mine.start, mine.stop, step):
            strip = rows[first : min(first + step, mine.stop) + 1]
            part = slice(strip[0], strip[-1]), *(slice(0, ends[-1]) for ends in across)
            inside = shape.inside(shape.level(lattice.grid, part))
            for axis, cuts in reversed(list(enumerate((strip - strip[0], *across)))):
                until = np.insert(np.cumsum(inside, axis=axis, dtype=int), 0, 0, axis=axis)
                inside = np.diff(np.take(until, cuts, axis), axis=axis)  # between cuts
            counts[first : first + len(strip) - 1] = inside
        return counts

    return ranks.sum(ranks.agree(count)).astype(int)


def _nearest(lattice: Lattice, axis: int) -> np.ndarray:
    """Return where the nodes of each subdomain begin along an axis, and where the last ones end."""
    nodes, first = lattice.grid.nodes[axis], lattice.first_centre[axis]
    centres = lattice.first_node[axis] + lattice.spacing * np.arange(first, lattice.cells[axis])
    between = centres[1:] - lattice.spacing // 2
    return np.concatenate([[0], np.clip(between, 0, nodes), [nodes]])
