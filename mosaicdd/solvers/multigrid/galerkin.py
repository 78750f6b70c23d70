"""The operator of the next coarser level: that of the energy of interpolated values, or what a velocity makes of it.

In energy form no digit is lost at any contrast: the coupling of two coarse nodes ``p`` and ``q`` is ``sum_i P_ip (sum_j k_ij
(P_jq - P_iq) - e_i P_iq)``, and the excess of ``p`` is what the equations make of ones, ``sum_i P_ip (e_i s_i + sum_j
k_ij (s_i - s_j))`` with the sums ``s`` of weights, of which what is missing to 1 is known.
Where a velocity makes the couplings of two nodes differ, the weights before these sums are those of the way back.

Coarse functions that the operator makes: hats that are harmonic on lines, faces and cells (Dendy, 1982).

A node between two coarse ones takes the value that its row asks for with all couplings collapsed to that line;
one between four or eight that of its row collapsed to the face or cell, nodes on lines before. Weights are shares of
sums of couplings, so they add up to 1 whatever the contrast; what is missing to 1 beside given values is kept apart,
as ``1 - sum`` would have no digit.

Where a velocity makes couplings differ in both directions, values are interpolated by their means, and residuals taken to
coarse nodes by the equations transposed, as their own hats (Dendy, 1983).
"""

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from mosaicdd.solvers.multigrid.coarsening import LevelTransfer
from mosaicdd.solvers.multigrid.colour_layout import (
    Class,
    CoarseningPattern,
    ColourLayout,
    Step,
    added,
    forward,
    opposite,
)
from mosaicdd.solvers.multigrid.level_operator import LEAST, Couplings, LevelOperator, shifted


@dataclass(frozen=True)
class Interpolation:
    """Values at all nodes of a level from those at its coarse nodes.

    Parameters
    ----------
    to
        Which nodes are coarse.
    weights
        Of each class and each direction to a coarse node beside it: ``(M,)``. The coarse nodes
        themselves are not among them: they keep their values.
    missing
        Of each of these classes: what weights lack to 1, ``(M,)``.
    back
        By which residuals are taken to coarse nodes; mostly the same weights.
    """

    to: CoarseningPattern
    weights: dict[Class, dict[Step, torch.Tensor]]
    missing: dict[Class, torch.Tensor]
    back: dict[Class, dict[Step, torch.Tensor]]

    def of(self, of: Class) -> Mapping[Step, torch.Tensor | None]:
        """Return the weights of a class; of coarse nodes None, for 1, that of themselves."""
        return self.weights[of] if any(self.to.odd[of]) else {(0,) * len(of): None}

    def back_of(self, of: Class) -> Mapping[Step, torch.Tensor | None]:
        """Return the weights by which residuals of a class are taken to coarse nodes."""
        return self.back[of] if any(self.to.odd[of]) else {(0,) * len(of): None}


def interpolation(level: LevelOperator, to: CoarseningPattern | None = None) -> Interpolation:
    """Return the interpolation that a level's operator makes.

    Parameters
    ----------
    to
        Which nodes are coarse; by default every second along each axis.
    """
    to = to or CoarseningPattern.of_all(level.nodes.axes)
    if not level.directed:
        return _interpolation(level, to, level.couplings_of)
    back = _interpolation(level, to, level.couplings_back).weights
    return replace(_interpolation(level, to, level.mean_couplings), back=back)


def _interpolation(
    level: LevelOperator, to: CoarseningPattern, couplings: Couplings
) -> Interpolation:
    """Return the interpolation of other couplings, with the same way back."""
    nodes, weights = level.nodes, dict[Class, dict[Step, torch.Tensor]]()
    made = Interpolation(to, weights, {}, weights)
    coarse = level.excess.new_zeros(len(to.classes), nodes.size)
    for of, values in zip(to.classes, coarse, strict=True):
        number = nodes.number[of]
        own = nodes.slots_of(number, nodes.box)
        nodes.at_slots(values)[own] = 1.0 + (nodes.at_slots(level.inverse[number])[own] > 0).to(
            values
        )
    for odd, of in sorted([(sum(to.odd[of]), of) for of in nodes.classes]):
        if not odd:
            continue
        corners = itertools.product(*[(-1, 1) if c else (0,) for c in to.odd[of]])
        made.weights[of] = {corner: torch.zeros_like(coarse[0]) for corner in corners}
        made.missing[of] = torch.zeros_like(coarse[0])
        for stretch in nodes.stretches():
            _interpolate(level, couplings, made, of, stretch, coarse)
    return made


def _interpolate(
    level: LevelOperator,
    couplings: Couplings,
    made: Interpolation,
    of: Class,
    stretch: slice,
    coarse: torch.Tensor,
) -> None:
    """Make the weights of a class in a stretch; those of classes of fewer odd indices are there.

    Parameters
    ----------
    coarse
        2 at coarse nodes with an unknown, 1 at others, ``(K, M)``; 0 elsewhere.
    """
    nodes, odd = level.nodes, made.to.odd[of]
    collapsed = _collapsed(couplings(of, stretch), odd, level.positive)
    excess = level.excess[nodes.number[of], stretch]
    if sum(odd) < nodes.axes:  # across the line values vary alike, unless a given one ends it
        excess = torch.where(_least_end(odd, collapsed) == 0, excess, 0.0)
    total, missing = excess, excess
    sums: dict[Step, torch.Tensor] = {}
    for step, coupling in collapsed.items():
        total = total + coupling if total is excess else total.add_(coupling)
        beside, distance = nodes.neighbours[of, step]
        if beside in made.to.number:
            _add(sums, step, coupling)
            continue
        lacking = shifted(made.missing[beside], stretch, distance)
        missing = torch.addcmul(missing, coupling, lacking)
        for corner, weight in made.weights[beside].items():
            at = slice(stretch.start + distance, stretch.stop + distance)
            _add(sums, added(step, corner), coupling, weight[at])
    lone = torch.nonzero(total < LEAST).ravel()
    inverse = total.clamp_(min=LEAST).reciprocal_()
    for corner, weight in made.weights[of].items():
        torch.mul(sums[corner], inverse, out=weight[stretch])
    torch.mul(missing, inverse, out=made.missing[of][stretch])
    if len(lone):
        # No coupling along the line: the mean of its ends with an unknown, or if none has one of all.
        places = lone + stretch.start
        beside_of = [nodes.neighbours[of, corner] for corner in made.weights[of]]
        ends = [coarse[made.to.number[end]][places + distance] for end, distance in beside_of]
        most = torch.stack(ends).amax(0).clamp_(min=1.0)
        ends = [(end == most).to(end) for end in ends]
        count = torch.stack(ends).sum(0).clamp_(min=1.0)
        for end, weight in zip(ends, made.weights[of].values(), strict=True):
            weight[places] = end / count
        made.missing[of][places] = 0.0


def _add(
    sums: dict[Step, torch.Tensor],
    corner: Step,
    coupling: torch.Tensor,
    weight: torch.Tensor | None = None,
) -> None:
    """Add a coupling, times a weight, to the sum of a corner."""
    if corner not in sums:  # which is read once if it has one term
        sums[corner] = coupling if weight is None else coupling * weight
    elif weight is None:
        sums[corner] = sums[corner] + coupling
    else:
        sums[corner].addcmul_(coupling, weight)


@functools.cache
def _lines(steps: tuple[Step, ...], odd: Class) -> dict[Step, list[Step]]:
    """Return the directions that collapse to each one within a line, face or cell, along odd axes."""
    lines: dict[Step, list[Step]] = {}
    for step in steps:
        within = tuple([s if c else 0 for s, c in zip(step, odd, strict=True)])
        if any(within):
            lines.setdefault(within, []).append(step)
    return lines


def _collapsed(
    couplings: Mapping[Step, torch.Tensor], odd: Class, positive: bool
) -> dict[Step, torch.Tensor]:
    """Return a class's couplings within its line, face or cell, along odd axes; of one sign, as weights are shares of them."""
    collapsed = {}
    for within, (first, *more) in _lines(tuple(couplings), odd).items():
        coupling = couplings[first]
        for step in more:
            coupling = coupling + couplings[step]
        collapsed[within] = coupling if positive else coupling.clamp(min=0.0)
    return collapsed


def _least_end(odd: Class, collapsed: dict[Step, torch.Tensor]) -> torch.Tensor:
    """Return the least of what couples a class to the ends of odd axes: zero where nothing does at one of them."""
    ends: list[torch.Tensor] = []
    for axis, is_odd in enumerate(odd):
        for end in (-1, 1) if is_odd else ():
            there, *more = [k for step, k in collapsed.items() if step[axis] == end]
            for coupling in more:
                there = there + coupling
            ends.append(there)
    least = ends[0]
    for there in ends[1:]:
        least = torch.minimum(least, there)
    return least


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
        _add_class(level, by, values, of, at_slots, excess)

    def below(values: torch.Tensor) -> torch.Tensor:
        return transfer.down(values, transfer.nodes.new(values.dtype))

    couplings = {step: below(at_slots.pop(step)) for step in list(at_slots)}
    if level.directed:
        _upwind(couplings, transfer.nodes)
    rounds = zip(transfer.between, transfer.below.shares.rounds, strict=True)
    for axis, (after, count) in enumerate(rounds):
        if after is not None and count is not None:
            add_odd_ghost(couplings, transfer.nodes, axis, after, count)
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
    """Return the pairs of coarse nodes that a class couples, and the coarse nodes of values beside it.

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
    corners = {step: {added(step, corner): corner for corner in theirs} for step, theirs in around}
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


def _add_class(
    level: LevelOperator,
    by: Interpolation,
    values: Mapping[Class, Weights],
    of: Class,
    couplings: Mapping[Step, torch.Tensor],
    excess: torch.Tensor,
) -> None:
    """Add the contributions of a class to couplings and excess of coarse nodes, ``(K, M)``.

    ``values``: the weights of all classes.
    """
    nodes, own = level.nodes, by.back_of(of)
    beside = {step: values[nodes.neighbours[of, step][0]] for step in level.steps}
    around = tuple([(step, tuple(weights)) for step, weights in beside.items()])
    pairs, corners = _coupled(tuple(own), around, by.to, tuple(couplings))
    for stretch in nodes.stretches():
        back, here = [
            {
                corner: None if weight is None else weight[stretch]
                for corner, weight in of_all.items()
            }
            for of_all in (own, values[of])
        ]
        at = {}
        for corner in back:
            coarse, distance = nodes.neighbours[of, corner]
            at[corner] = (
                by.to.number[coarse],
                slice(stretch.start + distance, stretch.stop + distance),
            )
        row = level.row(of, stretch)
        diagonal = level.excess[nodes.number[of], stretch]
        of_ones = _of_ones(level, by.missing, of, stretch, row)
        for corner, weight in back.items():
            _accumulate(excess[at[corner]], weight, of_ones)
        terms: list[Term] = [(k, corners[step], beside[step], there) for step, k, _, there in row]
        for to, ways in pairs.items():
            if ways:
                flow = _flow(to, here.get(to), terms, diagonal)
            for corner, step in ways.items():
                _accumulate(couplings[step][at[corner]], back[corner], flow)


def _flow(
    to: Step, here: torch.Tensor | None, terms: list[Term], excess: torch.Tensor
) -> torch.Tensor:
    """Return the flow into the nodes of a class from all sides, of the coarse function of one node.

    Parameters
    ----------
    here
        Its values at the nodes; None for zero.
    terms
        By direction, the couplings and the weights of values at the neighbours.
    excess
        Of the nodes.
    """
    flow = None if here is None else torch.mul(excess, here).neg_()
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
        if value is None:
            flow = coupling.clone() if flow is None else flow.add_(coupling)
        else:
            flow = coupling * value if flow is None else flow.addcmul_(coupling, value)
    if flow is None:
        raise RuntimeError("a coarse node beside is of a neighbour")
    return flow


def _of_ones(
    level: LevelOperator,
    missing: Mapping[Class, torch.Tensor],
    of: Class,
    stretch: slice,
    row: list[tuple[Step, torch.Tensor, int, slice]],
) -> torch.Tensor:
    """Return ``A 1`` at the nodes of a class in a stretch, by what the sums of weights lack to 1; ``row``: its couplings."""
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


def add_odd_ghost(
    couplings: dict[Step, torch.Tensor], nodes: ColourLayout, axis: int, after: int, count: int
) -> None:
    """Insert a node in each period of an axis with an odd number of coarse nodes, in place.

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
