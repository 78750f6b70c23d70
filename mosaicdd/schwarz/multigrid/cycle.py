"""The preconditioner: a V-cycle over levels, each with half as many nodes per axis, down to one that is inverted."""

import math
from collections.abc import Callable

import numpy as np
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
_POOR, _TRIALS = (
    0.9,
    8,
)  # contraction of levels below, seen in so many trials, above which that is done
_LARGE = 2**15  # nodes of levels that are visited twice: more visits of small ones cost too much
_INVERTED = 300  # unknowns of the coarsest level: as many as its dense inverse is cheap for


class Cycle:
    """An approximate inverse of an operator, symmetric and positive; all ranks make and call it together.

    Parameters
    ----------
    level
        The finest, on a rank's nodes and the copies around them.
    blocks
        How it lies over the ranks.

    Attributes
    ----------
    right_hand_side, values
        Of the finest level, ``(C, M)``, float32: what a call reads and what it writes; only values at nodes that this
        rank owns count.
    """

    def __init__(self, level: LevelOperator, blocks: Blocks):
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
        self._tried = 0  # of the ways to strengthen it
        self._twice: list[int] = []  # numbers of the levels that are visited twice
        self._solve, self._places = _inverse(level)
        vectors = [(stage.right_hand_side, stage.values) for stage, _ in self._stages]
        lowest = torch.zeros_like(level.inverse)
        self._vectors = [*vectors, (lowest, torch.zeros_like(lowest))]
        self.right_hand_side, self.values = self._vectors[0]

    def __call__(self) -> None:
        """Compute the values of a right-hand side."""
        if self._copies is not None:
            self._copies.refresh(self.right_hand_side)
        self._visit(0)

    def _visit(self, number: int) -> None:
        """Compute the values of a level's right-hand side, which is overwritten where it is visited twice."""
        if number == len(self._stages):
            lowest, values = self._vectors[-1]
            b = lowest.view(-1)[self._places].double()
            values.view(-1)[self._places] = self._solve(b).float()
            return
        smoothing, passage = self._stages[number]
        below, values = self._vectors[number + 1]
        for time in range(1 + (number in self._twice)):
            if time:
                above = self._stages[number - 1][1]
                above.refresh(smoothing.values)
                smoothing.begin_again()
                above.refresh(smoothing.right_hand_side)
            smoothing.down()
            passage.down(smoothing.coarse, below)
            self._visit(number + 1)
            passage.up(values, smoothing.coarse)
            smoothing.up()
        if number in self._twice:
            smoothing.add_first()

    def strengthen(self) -> bool:
        """Spend more on each call from now on, as contraction is bad; say whether there is more to spend.

        Conductors that hold no coarse node have a mode of their own each, that no level below theirs knows. Where these are
        in small levels one is factorised; else each of the larger levels below the finest is visited twice for each
        visit of the one above it.
        """
        ways = self._factorise, self._visit_twice
        while self._tried < len(ways):
            self._tried += 1
            if ways[self._tried - 1]():
                return True
        return False

    def _visit_twice(self) -> bool:
        levels = self._levels[1 : len(self._stages)]
        large = [i for i, level in enumerate(levels, 1) if level.nodes.count >= _LARGE]
        for number in large:
            self._stages[number][0].repeat()
        self._twice = large
        return bool(large)

    def _factorise(self) -> bool:
        small = [i for i, level in enumerate(self._levels[:-1]) if level.excess.numel()]
        if not small:
            return False
        first = small[0]
        matrix, places = self._levels[first].matrix()
        if self._contraction(first, matrix, places) < _POOR:
            return False
        self._solve, self._places = _factorised(matrix), places
        del self._levels[first + 1 :], self._stages[first:], self._vectors[first + 1 :]
        return True

    def _contraction(
        self, number: int, matrix: scipy.sparse.csc_array, places: torch.Tensor
    ) -> float:
        """Return by what a visit of a level reduces slow errors, in the energy norm."""
        b, values = (vector.view(-1) for vector in self._vectors[number])
        kept = b.clone()
        error = np.random.default_rng(0).standard_normal(len(places))
        left = matrix @ error
        energy = contraction = 1.0
        for _ in range(_TRIALS):
            size = np.linalg.norm(left)
            b[places] = torch.from_numpy(left / size).to(b)
            self._visit(number)
            error -= size * values[places].cpu().double().numpy()
            left = matrix @ error
            before, energy = energy, float(error @ left)
            contraction = math.sqrt(max(energy, 0.0) / before)
        b.copy_(kept)
        return contraction


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
    level: LevelOperator,
) -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]:
    """Return what multiplies with the inverse of a level's matrix, in float64, and where its unknowns are."""
    matrix, places = level.matrix()
    inverse = torch.linalg.inv(torch.from_numpy(matrix.toarray())).to(level.inverse.device)
    return lambda b: inverse @ b, places.to(inverse.device)
