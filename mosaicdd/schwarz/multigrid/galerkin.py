"""The operator of the next coarser level: that of the energy of interpolated values.

In energy form no digit is lost at any contrast: the coupling of two coarse nodes ``p`` and ``q`` is ``sum_i P_ip (sum_j k_ij
(P_jq - P_iq) - e_i P_iq)``, and the excess of ``p`` is what the equations make of ones, ``sum_i P_ip (e_i s_i + sum_j
k_ij (s_i - s_j))`` with the sums ``s`` of weights, of which what is missing to 1 is known.
"""

from collections.abc import Mapping

import torch

from mosaicdd.schwarz.multigrid.interpolation import Interpolation, towards
from mosaicdd.schwarz.multigrid.level_operator import LevelOperator, shifted
from mosaicdd.schwarz.multigrid.parities import Class, Step, forward
from mosaicdd.schwarz.multigrid.passage import Passage

Slots = tuple[int, ...]


def coarser(level: LevelOperator, by: Interpolation, passage: Passage) -> LevelOperator:
    """Return the operator between the coarse nodes of a level."""
    fine = level.nodes
    at_slots = {step: level.excess.new_zeros(fine.size) for step in forward(fine.axes)}
    excess = level.excess.new_zeros(fine.size)
    for of in fine.classes:
        for stretch in fine.stretches():
            _add(level, by, of, stretch, at_slots, excess)

    def below(values: torch.Tensor) -> torch.Tensor:
        return passage.down(values, passage.nodes.new(device=values.device))

    couplings = {step: below(at_slots.pop(step)) for step in list(at_slots)}
    return LevelOperator(passage.nodes, couplings, below(excess))


def _weights(by: Interpolation, of: Class) -> Mapping[Slots, torch.Tensor | None]:
    """Return a class's weights by slots to the coarse node; None for 1."""
    if not any(of):
        return {of: None}
    return {towards(of, corner): weight for corner, weight in by.weights[of].items()}


def _add(
    level: LevelOperator,
    by: Interpolation,
    of: Class,
    stretch: slice,
    couplings: dict[Step, torch.Tensor],
    excess: torch.Tensor,
) -> None:
    """Add what the nodes of a class in a stretch contribute, by the slots of the coarse nodes."""
    nodes = level.nodes
    own_excess = level.excess[nodes.number[of], stretch]
    own = {
        slots: None if weight is None else weight[stretch]
        for slots, weight in _weights(by, of).items()
    }
    flows = _flows(level, by, of, stretch)
    of_ones = own_excess.clone()
    if any(of):
        of_ones.addcmul_(own_excess, by.missing[of][stretch], value=-1.0)
    for step in level.steps:
        _add_of_ones(level, by, of, step, stretch, of_ones)
    for slots, weight in own.items():
        if weight is not None:
            flows[slots].addcmul_(own_excess, weight, value=-1.0)
    for slots, weight in own.items():
        distance = nodes.distance(slots)
        for to, flow in flows.items():
            step = tuple(a - b for a, b in zip(to, slots, strict=True))
            if step in couplings:
                _accumulate(shifted(couplings[step], stretch, distance), weight, flow)
        _accumulate(shifted(excess, stretch, distance), weight, of_ones)


def _flows(
    level: LevelOperator, by: Interpolation, of: Class, stretch: slice
) -> dict[Slots, torch.Tensor]:
    """Return what flows into the nodes of a class from the neighbours, per coarse function."""
    nodes, own = level.nodes, _weights(by, of)
    flows: dict[Slots, torch.Tensor] = {}
    for step in level.steps:
        coupling = level.coupling(of, step, stretch)
        beside, distance = nodes.neighbour(of, step)
        start = [(s > 0 and c == 1) - (s < 0 and c == 0) for c, s in zip(of, step, strict=True)]
        theirs = {
            tuple(a + b for a, b in zip(start, slots, strict=True)): weight
            for slots, weight in _weights(by, beside).items()
        }
        for slots in {*own, *theirs}:
            here = own.get(slots)
            if slots in own and here is None:
                continue  # of the coarse node itself: the diagonal is made as a sum
            if slots not in flows:
                flows[slots] = torch.zeros_like(coupling)
            value = None
            if slots in theirs:
                there = theirs[slots]
                value = None if there is None else shifted(there, stretch, distance)
            if here is not None:
                known = (1.0 if value is None else value) if slots in theirs else 0.0
                value = known - here[stretch]
            _accumulate(flows[slots], value, coupling)
    return flows


def _add_of_ones(
    level: LevelOperator,
    by: Interpolation,
    of: Class,
    step: Step,
    stretch: slice,
    out: torch.Tensor,
) -> None:
    """Add ``k (s - s')`` of the sums of weights at the nodes of a class and at their neighbours."""
    nodes = level.nodes
    beside, distance = nodes.neighbour(of, step)
    coupling = level.coupling(of, step, stretch)
    theirs = shifted(by.missing[beside], stretch, distance) if any(beside) else None
    mine = by.missing[of][stretch] if any(of) else None
    if theirs is not None:
        out.addcmul_(coupling, theirs if mine is None else theirs - mine)
    elif mine is not None:
        out.addcmul_(coupling, mine, value=-1.0)


def _accumulate(out: torch.Tensor, weight: torch.Tensor | None, values: torch.Tensor) -> None:
    """Add values times weights; a weight of None is 1."""
    if weight is None:
        out += values
    else:
        out.addcmul_(values, weight)
