"""Periodic axes of an odd number of coarse nodes: another node between two of them.

Colours and coarse nodes take turns, so they come round after an even number of nodes only. The node that is put between a
node ``a`` and the next ones ``b_j`` is the centre of a star: coupled to ``a`` by ``2 sum_j k_j`` and to each ``b_j`` by
``2 k_j``. Once its own equation has been solved, this is ``k_j`` between ``a`` and ``b_j``, as it was, and besides ``k_i
k_j / sum k`` between two of the next nodes: nothing where each is coupled to one, and else as much as the couplings
themselves at most, whatever the contrast. So it is as good for a preconditioner.
"""

import torch

from mosaicdd.schwarz.multigrid.parities import Parities, Step


def put_between(
    couplings: dict[Step, torch.Tensor], nodes: Parities, axis: int, after: int, count: int
) -> None:
    """Couple a node of every round along an axis, which is coupled to none yet, in place.

    Parameters
    ----------
    couplings
        By direction, ``(C, M)``, those of copies, too; at the ends of the box they are not right afterwards. Negative ones,
        if any lead past the node, are left out.
    after
        The node before it.
    count
        Nodes of a round, this one included.
    """
    box = [last - first + 1 for first, last in nodes.box]
    values = {
        step: nodes.give(k, k.new_empty(box)).movedim(axis, 0) for step, k in couplings.items()
    }
    straight = tuple(int(other == axis) for other in range(nodes.axes))
    across = tuple(range(nodes.axes - 1))
    start = (after - nodes.first[axis]) % count
    for before in range(start, box[axis] - 2, count):
        total = torch.zeros_like(values[straight][before])
        for step, k in values.items():
            beside = [s for other, s in enumerate(step) if other != axis]
            if step[axis] > 0:  # of the node before
                forth = k[before].clamp(min=0.0)
                k[before], k[before + 1] = 0.0, 2 * forth
                total += forth
            elif step[axis] < 0:  # of the next ones
                k[before + 2].clamp_(min=0.0).mul_(2)
                total += torch.roll(k[before + 2], beside, across) / 2
        values[straight][before] = 2 * total
    for step, k in couplings.items():
        nodes.take(values[step].movedim(0, axis), k)
