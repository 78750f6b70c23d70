"""Coarse functions that the operator makes: hats that are harmonic on lines, faces and cells (Dendy, 1982).

A node between two coarse ones takes the value that its row asks for with all couplings collapsed to that line;
one between four or eight that of its row collapsed to the face or cell, nodes on lines before. Weights are shares of
sums of couplings, so they add up to 1 whatever the contrast; what is missing to 1 beside given values is kept apart,
as ``1 - sum`` would have no digit.
"""

import itertools
from dataclasses import dataclass

import torch

from mosaicdd.schwarz.multigrid.level_operator import LevelOperator, shifted
from mosaicdd.schwarz.multigrid.parities import Class, Step


@dataclass(frozen=True)
class Interpolation:
    """Values at all nodes of a level from those at its coarse nodes.

    Parameters
    ----------
    weights
        Of each class and each direction to a coarse node beside it: ``(M,)``. The coarse nodes
        themselves, of class zero, are not among them: they keep their values.
    missing
        Of each of these classes: what weights lack to 1, ``(M,)``.
    """

    weights: dict[Class, dict[Step, torch.Tensor]]
    missing: dict[Class, torch.Tensor]


def interpolation(level: LevelOperator) -> Interpolation:
    """Return the interpolation that a level's operator makes."""
    nodes = level.nodes
    made = Interpolation({}, {})
    coarse = nodes.new(torch.float32, level.excess.device)
    for _, values, _ in nodes.by_class(coarse):
        values.fill_(1.0)
    for of in sorted(nodes.classes, key=sum)[1:]:
        for stretch in nodes.stretches():
            _interpolate(level, made, of, stretch, coarse)
    return made


def towards(of: Class, corner: Step) -> tuple[int, ...]:
    """Return how many slots per axis from a node to a coarse node beside it."""
    return tuple((step + 1) // 2 if c else 0 for c, step in zip(of, corner, strict=True))


def _interpolate(
    level: LevelOperator, made: Interpolation, of: Class, stretch: slice, there: torch.Tensor
) -> None:
    """Make the weights of a class in a stretch; those of classes of fewer odd indices are there."""
    nodes = level.nodes
    collapsed = _collapsed(level, of, stretch)
    corners = list(itertools.product(*[(-1, 1) if c else (0,) for c in of]))
    excess = level.excess[nodes.number[of], stretch]
    if sum(of) < nodes.axes:  # across the line values vary alike, unless a given one ends it
        excess = torch.where(_ends(of, collapsed), excess, 0.0)
    total, missing = excess.clone(), excess.clone()
    sums = {corner: torch.zeros_like(total) for corner in corners}
    for step, coupling in collapsed.items():
        total += coupling
        beside, distance = nodes.neighbour(of, step)
        if not any(beside):
            sums[step] += coupling
            continue
        missing.addcmul_(coupling, shifted(made.missing[beside], stretch, distance))
        for corner, weight in made.weights[beside].items():
            corner = tuple(a + b for a, b in zip(step, corner, strict=True))
            sums[corner].addcmul_(coupling, shifted(weight, stretch, distance))
    mine = there[nodes.number[of], stretch]
    lone = (total <= 0) & (mine > 0)  # no coupling along the line: the mean of its ends
    inverse = torch.where(total > 0, mine / total, 0.0)
    exists = {
        corner: shifted(there[0], stretch, nodes.distance(towards(of, corner)))
        for corner in corners
    }
    ends = torch.stack(list(exists.values())).sum(0).clamp_(min=1.0)
    weights = made.weights.setdefault(
        of, {corner: there.new_zeros(nodes.size) for corner in corners}
    )
    for corner in corners:
        mean = exists[corner] / ends
        weights[corner][stretch] = torch.where(lone, mean, sums[corner] * inverse)
    made.missing.setdefault(of, there.new_zeros(nodes.size))[stretch] = missing * inverse


def _collapsed(level: LevelOperator, of: Class, stretch: slice) -> dict[Step, torch.Tensor]:
    """Return a class's couplings within its line, face or cell; of one sign, as weights are shares of them."""
    collapsed: dict[Step, torch.Tensor] = {}
    for step in level.steps:
        within = tuple(s if c else 0 for s, c in zip(step, of, strict=True))
        if any(within):
            coupling = level.coupling(of, step, stretch)
            if within in collapsed:
                collapsed[within] += coupling
            else:
                collapsed[within] = coupling.clone()
    for coupling in collapsed.values():
        coupling.clamp_(min=0.0)
    return collapsed


def _ends(of: Class, collapsed: dict[Step, torch.Tensor]) -> torch.Tensor:
    """Return where nothing is coupled at one end of an axis."""
    shape = next(iter(collapsed.values()))
    ends = torch.zeros_like(shape, dtype=torch.bool)
    for axis in (axis for axis, c in enumerate(of) if c):
        for end in (-1, 1):
            there = torch.zeros_like(shape)
            for step, coupling in collapsed.items():
                if step[axis] == end:
                    there += coupling
            ends |= there == 0
    return ends
