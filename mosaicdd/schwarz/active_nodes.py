"""How many nodes of a shape lie around each lattice node: by that its blocks are cut."""

import numpy as np

from mosaicdd.lattice.lattice import Lattice
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.shapes.shape import Shape

_NODES = 2**21  # of the grid, looked at together


def active_nodes(shape: Shape, lattice: Lattice, ranks: Ranks) -> np.ndarray:
    """Count the nodes inside a shape that are nearest to each subdomain's centre; all ranks together.

    Every rank looks at its share of the grid.

    Returns
    -------
    ndarray
        ``lattice.subdomains``, integers.
    """
    rows, columns = (_nearest(lattice, axis) for axis in (0, 1))

    def count() -> np.ndarray:
        counts = np.zeros(lattice.subdomains)
        mine, step = ranks.share(len(counts)), max(1, _NODES // (lattice.spacing * columns[-1]))
        for first in range(mine.start, mine.stop, step):
            strip = rows[first : min(first + step, mine.stop) + 1]
            part = slice(strip[0], strip[-1]), slice(0, columns[-1])
            inside = shape.level(lattice.grid, part) < 0
            along = _sums(inside, columns)
            counts[first : first + len(strip) - 1] = _sums(along.T, strip - strip[0]).T
        return counts

    return ranks.sum(ranks.agree(count)).astype(int)


def _nearest(lattice: Lattice, axis: int) -> np.ndarray:
    """Return where the nodes of each subdomain begin along an axis, and where the last ones end."""
    nodes, first = lattice.grid.nodes[axis], lattice.first_centre[axis]
    centres = lattice.first_node[axis] + lattice.spacing * np.arange(first, lattice.cells[axis])
    between = centres[1:] - lattice.spacing // 2
    return np.concatenate([[0], np.clip(between, 0, nodes), [nodes]])


def _sums(values: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Add up values ``(rows, items)`` between cuts of the items."""
    until = np.zeros((len(values), values.shape[1] + 1), int)
    np.cumsum(values, axis=1, out=until[:, 1:])
    return until[:, cuts[1:]] - until[:, cuts[:-1]]
