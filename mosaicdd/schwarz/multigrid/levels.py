"""Whether float64 tells the level of every conductor: one that far worse ones join to given values may have any.

A number added to all values of a conductor changes what is left of its equations by the couplings around it alone.
Where rounding of its own is as large, no residual shows which number is right, and no iteration finds it.
"""

import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import breadth_first_order

from mosaicdd.schwarz.multigrid.aggregates import together
from mosaicdd.schwarz.multigrid.node_system import NodeSystem
from mosaicdd.schwarz.multigrid.pieces import pieces_of
from mosaicdd.unsupported import Unsupported

# Of a conductor's own couplings: rounding of these, 1e-16, makes its level uncertain by a thousandth there.
_TOLD = 1e-13


def require_levels(system: NodeSystem) -> None:
    """Check that each piece of strong couplings is joined to given values, or to others that are; all ranks together.

    Raises
    ------
    Unsupported
        If what joins one is less than `_TOLD` of its own couplings.
    """
    if system.directed:
        return
    low = _TOLD * system.scale
    weak = any(bool(((k > 0) & (k < low)).any()) for k in system.couplings.values())
    if not system.blocks.ranks.any(weak):
        return
    of_ranks = system.blocks.ranks.allgather(pieces_of(system)[0])
    every = np.unique(np.concatenate([known.names for known in of_ranks]))
    pairs, same = (
        np.searchsorted(every, np.concatenate([getattr(known, name) for known in of_ranks]))
        for name in ("pairs", "same")
    )
    couplings = np.concatenate([known.sums for known in of_ranks])
    conductor = together(same, len(every))
    count = int(conductor.max()) + 1
    top, excess = np.zeros(count), np.zeros(count)
    for known in of_ranks:
        here = conductor[np.searchsorted(every, known.names)]
        np.maximum.at(top, here, known.tops)
        np.add.at(excess, here, known.excess)
    a, b = conductor[pairs].T
    told = excess >= _TOLD * top
    if not told.any():  # all is up to a constant
        told[top.argmax()] = True
    # From what is told to what it tells, beginning at one more that tells the first ones.
    begins, ends = np.concatenate([a, b]), np.concatenate([b, a])
    tells = np.abs(np.tile(couplings, 2)) >= _TOLD * top[ends]
    first = np.flatnonzero(told)
    begins = np.concatenate([begins[tells], np.full(len(first), count)])
    ends = np.concatenate([ends[tells], first])
    shape = count + 1, count + 1
    graph = scipy.sparse.csr_array((np.ones(len(begins), np.int8), (begins, ends)), shape)
    left = np.ones(count + 1, bool)
    left[breadth_first_order(graph, count, return_predecessors=False)] = False
    if left.any():
        index = int(every[left[conductor]].min()) - 1
        ends_of_axes = system.blocks.shares.domain
        counts = [last - low + 1 for low, last in ends_of_axes]
        along = zip(np.unravel_index(index, counts), ends_of_axes, strict=True)
        node = tuple(int(n) + low for n, (low, _) in along)
        raise Unsupported(
            f"a conductor at node {node} is joined to given values by less than {_TOLD:g} of what joins it in itself, and "
            "float64 tells no level of it: hold a value in it, leave it out of the domain, or let what is around it "
            "conduct more"
        )
