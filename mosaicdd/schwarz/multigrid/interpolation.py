"""Coarse functions that the operator makes: hats that are harmonic on lines, faces and cells (Dendy, 1982).

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

from mosaicdd.schwarz.multigrid.colour_layout import Class, CoarseningPattern, Step
from mosaicdd.schwarz.multigrid.level_operator import LEAST, Couplings, LevelOperator, shifted


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
        return _or_itself(self.weights, self.to, of)

    def back_of(self, of: Class) -> Mapping[Step, torch.Tensor | None]:
        """Return the weights by which residuals of a class are taken to coarse nodes."""
        return _or_itself(self.back, self.to, of)


def _or_itself(
    every: Mapping[Class, Mapping[Step, torch.Tensor]], to: CoarseningPattern, of: Class
) -> Mapping[Step, torch.Tensor | None]:
    return every[of] if any(to.odd[of]) else {(0,) * len(of): None}


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
            corner = tuple([a + b for a, b in zip(step, corner, strict=True)])
            _add(sums, corner, coupling, shifted(weight, stretch, distance))
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
    """Return which directions collapse to each one within a line, face or cell, along odd axes."""
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
