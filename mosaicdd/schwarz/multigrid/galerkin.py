"""The operator of the next coarser level: that of the energy of interpolated values, or what a velocity makes of it.

In energy form no digit is lost at any contrast: the coupling of two coarse nodes ``p`` and ``q`` is ``sum_i P_ip (sum_j k_ij
(P_jq - P_iq) - e_i P_iq)``, and the excess of ``p`` is what the equations make of ones, ``sum_i P_ip (e_i s_i + sum_j
k_ij (s_i - s_j))`` with the sums ``s`` of weights, of which what is missing to 1 is known.
Where a velocity makes the couplings of two nodes differ, the weights before these sums are those of the way back.
"""

import functools
import itertools
from collections.abc import Mapping

import torch

from mosaicdd.schwarz.multigrid.colour_layout import (
    Class,
    CoarseningPattern,
    ColourLayout,
    Step,
    forward,
    opposite,
)
from mosaicdd.schwarz.multigrid.interpolation import Interpolation
from mosaicdd.schwarz.multigrid.level_operator import LevelOperator, shifted
from mosaicdd.schwarz.multigrid.level_transfer import LevelTransfer


def coarser(level: LevelOperator, by: Interpolation, transfer: LevelTransfer) -> LevelOperator:
    """Return the operator between the coarse nodes of a level."""
    fine, to = level.nodes, by.to
    ways = forward(fine.axes)
    if level.directed:
        ways += [opposite(step) for step in ways]
    at_slots = {step: level.excess.new_zeros(len(to.classes), fine.size) for step in ways}
    excess = level.excess.new_zeros(len(to.classes), fine.size)
    values = {of: by.of(of) for of in fine.classes}
    for of in fine.classes:
        if level.positive and not level.directed and all(to.odd[of]):
            continue  # values there are those of their own equations, with nothing left
        nodes = _NodesOfClass(level, by, values, of, tuple(ways))
        for stretch in fine.stretches():
            nodes.add(stretch, at_slots, excess)

    def below(values: torch.Tensor) -> torch.Tensor:
        return transfer.down(values, transfer.nodes.new(values.dtype))

    couplings = {step: below(at_slots.pop(step)) for step in list(at_slots)}
    if level.directed:
        _upwind(couplings, transfer.nodes)
    rounds = zip(transfer.between, transfer.below.shares.rounds, strict=True)
    for axis, (after, count) in enumerate(rounds):
        if after is not None and count is not None:
            put_between(couplings, transfer.nodes, axis, after, count)
            for coupling in couplings.values():
                transfer.refresh(coupling)
    return LevelOperator(transfer.nodes, couplings, below(excess))


def _upwind(couplings: Mapping[Step, torch.Tensor], nodes: ColourLayout) -> None:
    """Add to both couplings of two nodes what one of them is below zero, in place.

    A flow that is fast for the coarser grid makes it so; with diffusion of that size it is taken from upstream instead, as
    on the finest grid, and sweeps go with it (discrete upwinding: Kuzmin and Turek, 2002).
    """
    reach = nodes.distance([1] * nodes.axes)
    every = slice(reach, nodes.size - reach)
    for step in forward(nodes.axes):
        for number, of in enumerate(nodes.classes):
            there, distance = nodes.neighbours[of, step]
            forth = couplings[step][number, every]
            back = shifted(couplings[opposite(step)][nodes.number[there]], every, distance)
            more = torch.minimum(forth, back).clamp_(max=0.0)
            forth -= more
            back -= more


Corners = tuple[Step, ...]
Weights = Mapping[Step, torch.Tensor | None]


@functools.cache
def _coupled(
    own: Corners,
    around: tuple[tuple[Step, Corners], ...],
    to: CoarseningPattern,
    ways: tuple[Step, ...],
) -> tuple[dict[Step, dict[Step, Step]], dict[Step, dict[Step, Step]]]:
    """Return which coarse nodes the nodes of a class couple, and which the values beside them come from.

    Parameters
    ----------
    own
        From a node to the coarse nodes that its residual goes to.
    around
        By direction, from the neighbour there to the coarse nodes of its value.
    ways
        Directions of the level below that couplings are computed for.

    Returns
    -------
    pairs
        For each coarse node of a value near by, as seen from the node: the own coarse nodes coupled to it, and by which way.
    corners
        By direction: the same coarse nodes, as seen from the neighbour.
    """
    corners = {
        step: {tuple([a + b for a, b in zip(step, c, strict=True)]): c for c in theirs}
        for step, theirs in around
    }
    ends_of_values = {*own}.union(*corners.values())
    pairs: dict[Step, dict[Step, Step]] = {}
    for end in sorted(ends_of_values):
        pairs[end] = {}
        for corner in own:
            ends = zip(end, corner, to.axes, strict=True)
            way = tuple([(a - b) // (1 + halved) for a, b, halved in ends])
            if way in ways:
                pairs[end][corner] = way
    return pairs, corners


Term = tuple[torch.Tensor, Mapping[Step, Step], Weights, slice]
"""Couplings in a direction, coarse nodes by how they are seen from the neighbours, weights there, and where these are."""


class _NodesOfClass:
    """What the nodes of a class contribute, by the ways to coarse nodes around."""

    def __init__(
        self,
        level: LevelOperator,
        by: Interpolation,
        values: Mapping[Class, Weights],
        of: Class,
        ways: tuple[Step, ...],
    ):
        self._level, self._by, self._of = level, by, of
        self._values, self._own = values[of], by.back_of(of)
        self._beside = {q: values[level.nodes.neighbours[of, q][0]] for q in level.steps}
        around = tuple([(step, tuple(weights)) for step, weights in self._beside.items()])
        self._pairs, self._corners = _coupled(tuple(self._own), around, by.to, ways)

    def add(
        self, stretch: slice, couplings: Mapping[Step, torch.Tensor], excess: torch.Tensor
    ) -> None:
        """Add what those in a stretch do."""
        own, values = [
            {corner: None if weight is None else weight[stretch] for corner, weight in of.items()}
            for of in (self._own, self._values)
        ]
        row = self._level.row(self._of, stretch)
        of_ones = self._of_ones(row, stretch)
        for corner, weight in own.items():
            _accumulate(self._at(excess, corner, stretch), weight, of_ones)
        terms = [(k, self._corners[q], self._beside[q], there) for q, k, _, there in row]
        for to, pairs in self._pairs.items():
            if pairs:
                flow = self._flow(to, values.get(to), terms, stretch)
            for corner, step in pairs.items():
                _accumulate(self._at(couplings[step], corner, stretch), own[corner], flow)

    def _at(self, values: torch.Tensor, corner: Step, stretch: slice) -> torch.Tensor:
        """Return a view of values ``(K, M)`` at the coarse nodes so far from those of the class."""
        of, distance = self._level.nodes.neighbours[self._of, corner]
        return shifted(values[self._by.to.number[of]], stretch, distance)

    def _flow(
        self, to: Step, here: torch.Tensor | None, terms: list[Term], stretch: slice
    ) -> torch.Tensor:
        """Return what flows into the nodes from all sides, of the coarse function of one node.

        Parameters
        ----------
        here
            Its values at the nodes; None for zero.
        terms
            By direction, the couplings and what values at the neighbours are made of.
        """
        level, of, flow = self._level, self._of, None
        if here is not None:
            flow = torch.mul(level.excess[level.nodes.number[of], stretch], here).neg_()
        for coupling, corners, weights, there in terms:
            if to not in corners:
                if here is not None and flow is not None:
                    flow.addcmul_(coupling, here, value=-1.0)
                continue
            value = weights[corners[to]]
            if value is not None:
                value = value[there]
            if here is not None:
                value = 1.0 - here if value is None else value - here
            if flow is None:
                flow = coupling.clone() if value is None else coupling * value
            else:
                _accumulate(flow, value, coupling)
        if flow is None:
            raise RuntimeError("a coarse node beside is of a neighbour")
        return flow

    def _of_ones(
        self, row: list[tuple[Step, torch.Tensor, int, slice]], stretch: slice
    ) -> torch.Tensor:
        """Return what their equations make of ones, by what sums ``s`` of weights lack to 1."""
        level, of, missing = self._level, self._of, self._by.missing
        out = level.excess[level.nodes.number[of], stretch].clone()
        mine = missing[of][stretch] if of in missing else None
        if mine is not None:
            out.addcmul_(out, mine, value=-1.0)
        for _, coupling, number, there in row:
            beside = level.nodes.classes[number]
            if beside in missing:
                theirs = missing[beside][there]
                out.addcmul_(coupling, theirs if mine is None else theirs - mine)
            elif mine is not None:
                out.addcmul_(coupling, mine, value=-1.0)
        return out


def _accumulate(out: torch.Tensor, weight: torch.Tensor | None, values: torch.Tensor) -> None:
    """Add values times weights; a weight of None is 1."""
    if weight is None:
        out += values
    else:
        out.addcmul_(values, weight)


def put_between(
    couplings: dict[Step, torch.Tensor], nodes: ColourLayout, axis: int, after: int, count: int
) -> None:
    """Couple a node of every round along a periodic axis of an odd number of coarse nodes, in place.

    Colours and coarse nodes take turns, so they come round after an even number of nodes only. The node that is put between
    a node ``a`` and the next ones ``b_j`` is the centre of a star: coupled to ``a`` by ``2 sum_j k_j`` and to each ``b_j``
    by ``2 k_j``. Once its own equation has been solved, this is ``k_j`` between ``a`` and ``b_j``, as it was, and besides
    ``k_i k_j / sum k`` between two of the next nodes: nothing where each is coupled to one, and else as much as the
    couplings themselves at most, whatever the contrast. So it is as good for a preconditioner.

    Where a velocity makes the couplings ``k_j`` in the equation of ``a`` others than those in the equations of ``b_j``,
    these are doubled, each in its own equation, and that of the centre has the sums of both.

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
