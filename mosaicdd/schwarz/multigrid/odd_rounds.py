"""Periodic axes of an odd number of coarse nodes: another node between two of them.

Colours and coarse nodes take turns, so they come round after an even number of nodes only. The node that is put between a
node ``a`` and the next ones ``b_j`` is the centre of a star: coupled to ``a`` by ``2 sum_j k_j`` and to each ``b_j`` by
``2 k_j``. Once its own equation has been solved, this is ``k_j`` between ``a`` and ``b_j``, as it was, and besides ``k_i
k_j / sum k`` between two of the next nodes: nothing where each is coupled to one, and else as much as the couplings
themselves at most, whatever the contrast. So it is as good for a preconditioner.

Where a velocity makes the couplings ``k_j`` in the equation of ``a`` others than those in the equations of ``b_j``, these are
doubled, each in its own equation, and that of the centre has the sums of both.
"""

import itertools

import torch

from mosaicdd.schwarz.multigrid.parities import Parities, Step, opposite


def put_between(
    couplings: dict[Step, torch.Tensor], nodes: Parities, axis: int, after: int, count: int
) -> None:
    """Couple a node of every round along an axis, which is coupled to none yet, in place.

    Parameters
    ----------
    couplings
        By direction, see `LevelOperator`, those of copies, too; at the ends of the box they are not right afterwards. Negative
        ones, if any lead past the node, are left out.
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
    ahead = [
        (*s[:axis], 1, *s[axis:]) for s in itertools.product((-1, 0, 1), repeat=nodes.axes - 1)
    ]
    start = (after - nodes.first[axis]) % count
    for before in range(start, box[axis] - 2, count):
        forth_of_all, of_centre = (torch.zeros_like(values[straight][before]) for _ in range(2))
        for step in ahead:
            away = [-s for other, s in enumerate(step) if other != axis]
            there, theirs = values.get(step), values.get(opposite(step))
            if theirs is not None:  # of the next nodes, each beside its node before
                theirs[before + 2].clamp_(min=0.0)
                back = (
                    torch.roll(theirs[before + 2], away, across) if across else theirs[before + 2]
                )
                back = back.clone()
                theirs[before + 2].mul_(2)
            forth = back if there is None else there[before].clamp(min=0.0)
            if theirs is None:
                back = forth
            if there is not None:
                there[before], there[before + 1] = 0.0, forth + back
            forth_of_all += forth
            of_centre += forth + back
        values[straight][before] = 2 * forth_of_all
        if opposite(straight) in values:
            values[opposite(straight)][before + 1] = of_centre
    for step, k in couplings.items():
        nodes.take(values[step].movedim(0, axis), k)
