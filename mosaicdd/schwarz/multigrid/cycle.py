"""The preconditioner: a V-cycle over levels, each with half as many nodes per axis, down to one that is inverted."""

import torch

from mosaicdd.schwarz.multigrid.galerkin import coarser, gather, spread
from mosaicdd.schwarz.multigrid.interpolation import interpolation
from mosaicdd.schwarz.multigrid.level import Level
from mosaicdd.schwarz.multigrid.smoothing import Smoothing

_INVERTED = 300  # unknowns of the coarsest level: as many as its dense inverse is cheap for


class Cycle:
    """An approximate inverse of an operator, symmetric and positive.

    Parameters
    ----------
    level
        The finest.

    Attributes
    ----------
    right_hand_side, values
        Of the finest level, ``(C, M)``, float32: what a call reads and what it writes.
    """

    def __init__(self, level: Level):
        self._levels: list[tuple[Level, Smoothing]] = []
        while level.nodes.nodes > _INVERTED:
            by = interpolation(level)
            below = coarser(level, by)
            # Sweeps need the diagonal's inverse only.
            level.excess = level.excess.new_empty(0)
            self._levels.append((level, Smoothing(level, by)))
            level = below
        self._coarsest = level
        self._inverse, self._places = _inverse(level)
        self._right_hand_side = level.nodes.new(device=level.inverse.device)
        self._values = torch.zeros_like(self._right_hand_side)
        finest = self._levels[0][1] if self._levels else None
        self.right_hand_side = self._right_hand_side if finest is None else finest.right_hand_side
        self.values = self._values if finest is None else finest.values

    def __call__(self) -> None:
        """Compute the values of a right-hand side."""
        for number, (level, smoothing) in enumerate(self._levels):
            smoothing.down()
            nodes, right_hand_side = self._below(number)[:2]
            spread(level.nodes, smoothing.coarse, nodes, right_hand_side)
        b = self._right_hand_side.view(-1)[self._places].double()
        self._values.view(-1)[self._places] = (self._inverse @ b).float()
        for number, (level, smoothing) in reversed(list(enumerate(self._levels))):
            nodes, _, values = self._below(number)
            gather(nodes, values, level.nodes, smoothing.coarse)
            smoothing.up()

    def _below(self, number: int):
        """Return the layout, the right-hand side and the values of the level below one."""
        if number + 1 == len(self._levels):
            return self._coarsest.nodes, self._right_hand_side, self._values
        level, smoothing = self._levels[number + 1]
        return level.nodes, smoothing.right_hand_side, smoothing.values


def _inverse(level: Level) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inverse of a level's matrix, in float64, and where its unknowns are.

    Where nothing holds the values, of those whose sum is zero.
    """
    matrix, places = level.matrix()
    if bool(level.excess.any()):
        inverse = torch.linalg.inv(matrix)
    else:
        size = matrix.diagonal().mean()
        constant = torch.full_like(matrix, 1 / len(matrix))
        inverse = torch.linalg.inv(matrix + size * constant) - constant / size
    device = level.inverse.device
    return inverse.to(device), places.to(device)
