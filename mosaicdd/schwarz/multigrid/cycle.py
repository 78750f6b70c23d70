"""The preconditioner: a V-cycle over levels, each with half as many nodes per axis, down to one that is inverted."""

from collections.abc import Callable

import scipy.sparse
import scipy.sparse.linalg
import torch

from mosaicdd.schwarz.multigrid.blocks import Blocks
from mosaicdd.schwarz.multigrid.galerkin import coarser
from mosaicdd.schwarz.multigrid.interpolation import interpolation
from mosaicdd.schwarz.multigrid.level_operator import LevelOperator
from mosaicdd.schwarz.multigrid.passage import Passage
from mosaicdd.schwarz.multigrid.smoothing import Smoothing

# Unknowns of a level that is factorised where levels below it are not good enough: 128 x 128 nodes take 0.1 s.
_FACTORISED = 17_000
_INVERTED = 300  # unknowns of the coarsest level: as many as its dense inverse is cheap for


class Cycle:
    """An approximate inverse of an operator, symmetric and positive; all ranks make and call it together.

    Parameters
    ----------
    level
        The finest, on a rank's nodes and the copies around them.
    blocks
        How it lies over the ranks.
    held
        Whether values are held by an excess anywhere.

    Attributes
    ----------
    right_hand_side, values
        Of the finest level, ``(C, M)``, float32: what a call reads and what it writes; only values at nodes that this
        rank owns count.
    """

    def __init__(self, level: LevelOperator, blocks: Blocks, *, held: bool):
        lying = blocks if blocks.shared else None
        self._copies = blocks.exchange(level.inverse)
        self._stages: list[tuple[Smoothing, Passage]] = []
        self._levels: list[LevelOperator] = []
        while lying is not None or level.nodes.count > _INVERTED:
            by = interpolation(level)
            passage = Passage(level.nodes, lying)
            below = coarser(level, by, passage)
            if lying is not None or level.nodes.count > _FACTORISED:
                level.excess = level.excess.new_empty(0)  # sweeps need the diagonal's inverse only
            self._stages.append((Smoothing(level, by), passage))
            self._levels.append(level)
            level, lying = below, passage.below
        self._levels.append(level)
        self._held = held
        self._solve, self._places = _inverse(level, held=held)
        vectors = [(stage.right_hand_side, stage.values) for stage, _ in self._stages]
        lowest = torch.zeros_like(level.inverse)
        self._vectors = [*vectors, (lowest, torch.zeros_like(lowest))]
        self.right_hand_side, self.values = self._vectors[0]

    def __call__(self) -> None:
        """Compute the values of a right-hand side."""
        if self._copies is not None:
            self._copies.refresh(self.right_hand_side)
        for (smoothing, passage), (below, _) in zip(self._stages, self._vectors[1:], strict=True):
            smoothing.down()
            passage.down(smoothing.coarse, below)
        lowest, values = self._vectors[-1]
        b = lowest.view(-1)[self._places].double()
        values.view(-1)[self._places] = self._solve(b).float()
        stages = zip(reversed(self._stages), self._vectors[:0:-1], strict=True)
        for (smoothing, passage), (_, values) in stages:
            passage.up(values, smoothing.coarse)
            smoothing.up()

    def factorise(self) -> bool:
        """Solve the finest level that is small enough directly from now on, where that is not done; say so.

        Conductors that hold no coarse node have a mode of their own each, that no level below theirs knows.
        """
        for number, level in enumerate(self._levels[:-1]):
            if level.excess.numel() and level.nodes.count <= _FACTORISED and self._held:
                matrix, self._places = level.matrix()
                self._solve = _factorised(matrix)
                del self._levels[number + 1 :], self._stages[number:], self._vectors[number + 1 :]
                return True
        return False


def _factorised(matrix: scipy.sparse.csc_array) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what solves with a symmetric matrix."""
    factors = scipy.sparse.linalg.splu(
        matrix,
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    return lambda b: torch.from_numpy(factors.solve(b.cpu().numpy())).to(b)


def _inverse(
    level: LevelOperator, *, held: bool
) -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]:
    """Return what multiplies with the inverse of a level's matrix, in float64, and where its unknowns are.

    Where nothing holds the values, of those whose sum is zero.
    """
    sparse, places = level.matrix()
    matrix = torch.from_numpy(sparse.toarray())
    if held:
        inverse = torch.linalg.inv(matrix)
    else:
        size = matrix.diagonal().mean()
        constant = torch.full_like(matrix, 1 / len(matrix))
        inverse = torch.linalg.inv(matrix + size * constant) - constant / size
    inverse = inverse.to(level.inverse.device)
    return lambda b: inverse @ b, places.to(inverse.device)
