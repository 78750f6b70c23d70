"""The preconditioner: a V-cycle over levels, each with half as many nodes per axis, down to one that is inverted.

`Cycle` chooses each level's smoother, a `LevelStep`.

Where `Cycle.contracts` finds that the second level needs it, `Deflation` by aggregates comes before and after the work of
that level (balancing: Mandel, 1993), and leaves nothing of the residual's sum over any aggregate. With
``Q = W inverse(W' A W) W'`` and ``C`` for the cycle from that level on, it is ``Q + (1 - Q A) C (1 - A Q)``: symmetric and
positive as the cycle is.
"""

import math
from collections.abc import Callable

import numpy as np
import scipy.sparse.linalg
import torch

from mosaicdd.solvers.multigrid.aggregates import CoarseAggregates
from mosaicdd.solvers.multigrid.coarsening import LevelTransfer, halving
from mosaicdd.solvers.multigrid.galerkin import coarser, interpolation
from mosaicdd.solvers.multigrid.iteration import Product
from mosaicdd.solvers.multigrid.level_operator import CoupledLevel, LevelOperator
from mosaicdd.solvers.multigrid.level_partition import LevelBox
from mosaicdd.solvers.multigrid.smoothing import LevelStep, LineGaussSeidel, Smoothing
from mosaicdd.solvers.multigrid.vector_operations import dot

# By axes, of a constant source what iterations leave of it where aggregates are not worth their set-up. Where coarse levels see all
# it is 0.04 at most, in values that are independent; in space, where conductors hold no node of theirs, 0.1 to 30. In the plane
# this level has a quarter of all nodes: checkerboards, with 4 and more, gain a third, but channels, with 0.5 to 2.2, take 20
# iterations of 29 in nearly twice the seconds, at 1024 x 1024 (`benchmarks/fields.py`).
_LEFT, _TRIALS = {1: 0.7, 2: 3.0, 3: 0.1}, 4


class Deflation:
    """Deflation of a level by its aggregates; all ranks that share the level make and call it together.

    Parameters
    ----------
    level
        With its excess.
    right_hand_side, values
        Of the level's step, ``(C, M)``.
    """

    def __init__(
        self,
        level: LevelOperator,
        blocks: LevelBox,
        right_hand_side: torch.Tensor,
        values: torch.Tensor,
    ):
        self._aggregates = CoarseAggregates(CoupledLevel(level, blocks))
        self._copies = blocks.exchange(values)
        self._b, self._values, self._image = right_hand_side, values, torch.zeros_like(values)
        self._product = Product(level, values, self._image, level.excess)
        self._constants = np.zeros(self._aggregates.count)

    def deflate(self) -> None:
        """Let the right-hand side have no sum over any aggregate."""
        self._clear(self._b)
        self._constants = self._aggregates.coarse_solve(self._b)
        self._values.zero_()
        self._aggregates.prolong_add(self._constants, self._values)
        self._multiply()
        self._b -= self._image
        if self._copies is not None:
            self._copies.refresh(self._b)

    def correct(self) -> None:
        """Let the values be those of the right-hand side before, and leave no sum over any aggregate."""
        if self._copies is not None:
            self._copies.refresh(self._values)
        self._multiply()
        self._clear(self._b)
        self._clear(self._image)
        left = self._aggregates.coarse_solve(self._b, self._image)
        self._aggregates.prolong_add(self._constants + left, self._values)
        self._b.zero_()  # as nodes that are put between others have no other right-hand side

    def _multiply(self) -> None:
        for number in range(len(self._product.stretches)):
            self._product.of_stretch(number)

    def _clear(self, vector: torch.Tensor) -> None:
        if self._copies is not None:
            self._copies.clear(vector)


def contracts(
    level: LevelOperator,
    blocks: LevelBox,
    right_hand_side: torch.Tensor,
    values: torch.Tensor,
    cycle: Callable[[], None],
) -> bool:
    """Say whether conjugate gradients under a cycle contract on a level, by a constant source; all ranks together.

    Parameters
    ----------
    right_hand_side, values
        What the cycle reads and writes; see `Deflation`.
    """
    copies, ranks = blocks.exchange(values), blocks.ranks
    r, p, q = (torch.zeros_like(values) for _ in range(3))
    product = Product(level, p, q, level.excess)
    owned = [level.nodes.by_class(vector, blocks.owned) for vector in (r, level.inverse)]
    for of_class, inverse in zip(*owned, strict=True):
        of_class.copy_(inverse > 0)

    def total(*numbers: float) -> list[float]:
        return ranks.sum(np.array(numbers)).tolist()

    (first,) = total(dot(r, r))
    energy, beta, sound = 0.0, 0.0, True
    for _ in range(_TRIALS):
        right_hand_side.copy_(r)
        if copies is not None:
            copies.refresh(right_hand_side)
        cycle()
        if copies is not None:
            copies.refresh(values)
        if energy:
            (along,) = total(dot(q, values))
            beta = -along / energy
        p.mul_(beta).add_(values)
        for number in range(len(product.stretches)):
            product.of_stretch(number)
        if copies is not None:
            copies.clear(q)
        energy, along = total(dot(q, p), dot(r, p))
        sound = energy > 0 and math.isfinite(along)
        if not sound:
            break
        r.add_(q, alpha=-along / energy)
    right_hand_side.zero_()  # see `Deflation.correct`
    (squares,) = total(dot(r, r))
    return sound and squares <= _LEFT[level.nodes.axes] ** 2 * first


_INVERTED = 300  # unknowns of the coarsest level: as many as its dense inverse is cheap for
# By axes, unknowns that are factorised with a velocity: on the levels below, flows would be ever faster for the grid, and sweeps
# would know ever less of them.
_FACTORISED = {2: 5000, 3: 1500}

Bottom = tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]
"""What solves on the coarsest level, in float64, and where its unknowns are."""


class Cycle:
    """An approximate inverse of an operator, symmetric and positive as this is; all ranks make and call it together.

    Parameters
    ----------
    level
        The finest, on a rank's nodes and the copies around them.
    blocks
        How it lies over the ranks.

    Attributes
    ----------
    right_hand_side, values
        Of the finest level, ``(C, M)``, as the level's: what a call reads and what it writes; only values at nodes that this
        rank owns count.
    """

    def __init__(self, level: LevelOperator, blocks: LevelBox):
        self._copies, shared = blocks.exchange(level.inverse), blocks.shared
        stages: list[tuple[LevelStep, LevelTransfer]] = []
        bottom: Bottom | None = None
        # Of much fewer nodes than the first; else aggregates cost as much as there.
        self._second: tuple[LevelOperator, LevelBox] | None = None
        self._balancing: Deflation | None = None
        while blocks.shared or blocks.whole.count > _INVERTED:
            if level.directed and not blocks.shared:
                bottom = _factorised(level, blocks)
                if bottom is not None:
                    break
            to = halving(level, blocks)
            by, transfer = interpolation(level, to), LevelTransfer(blocks, to, level.inverse.dtype)
            below = coarser(level, by, transfer)
            by.missing.clear()
            step: LevelStep
            if level.directed:
                step = LineGaussSeidel(level, by, blocks)
            else:
                twice = blocks.shares.twice
                step = Smoothing(level, by, blocks.exchange(level.inverse) if twice else None)
            if len(stages) == 1 and not level.directed and all(stages[0][1].by.axes):
                self._second = level, blocks
            else:  # sweeps need the diagonal's inverse only
                level.excess = level.excess.new_empty(0)
            stages.append((step, transfer))
            level, blocks = below, transfer.below
        self._solve, self._places = bottom or _inverse(level, blocks)
        vectors = [(smoothing.right_hand_side, smoothing.values) for smoothing, _ in stages]
        self._lowest = torch.zeros_like(level.inverse), torch.zeros_like(level.inverse)
        vectors.append(self._lowest)
        self.right_hand_side, self.values = vectors[0]
        self._stages = [
            (
                smoothing,
                transfer.way_down(smoothing.coarse, b),
                transfer.way_up(x, smoothing.coarse),
            )
            for (smoothing, transfer), (b, x) in zip(stages, vectors[1:], strict=True)
        ]
        # Of a host it is none: with a method of its own it would hold itself, and its levels would outlive it.
        self._replay: Callable[[], None] | None = None
        if (
            self.values.is_cuda and not shared and not level.directed
        ):  # messages, and sweeps from node to node, are the host's
            self._replay = _graph(self._go, self.values.device)

    def __call__(self) -> None:
        """Compute the values of a right-hand side."""
        run = self._replay or self._go
        run()

    def contracts(self) -> bool:
        """Say whether the cycle of the second level contracts there, if aggregates could help; all ranks together."""
        if self._second is None:
            return True
        return contracts(*self._second, *self._of_second, lambda: self._go(1))

    def balance(self) -> bool:
        """From now on leave nothing of aggregates on the second level; say if that is new. All ranks together."""
        if self._second is None or self._balancing is not None:
            return False
        self._balancing = Deflation(*self._second, *self._of_second)
        self._replay = None  # factors are the host's
        return True

    @property
    def _of_second(self) -> tuple[torch.Tensor, torch.Tensor]:
        smoothing, _, _ = self._stages[1]
        return smoothing.right_hand_side, smoothing.values

    def _go(self, first: int = 0) -> None:
        """Go down from a level and back; from the finest by default."""
        if self._copies is not None and not first:
            self._copies.refresh(self.right_hand_side)
        for number, (smoothing, down, _) in enumerate(self._stages[first:], first):
            if number == 1 and self._balancing is not None:
                self._balancing.deflate()
            smoothing.pre_smooth_restrict()
            down()
        lowest, values = self._lowest
        b = lowest.view(-1)[self._places].double()
        values.view(-1)[self._places] = self._solve(b).to(values.dtype)
        for number in range(len(self._stages) - 1, first - 1, -1):
            smoothing, _, up = self._stages[number]
            up()
            smoothing.prolong_post_smooth()
            if number == 1 and self._balancing is not None:
                self._balancing.correct()


def _factorised(level: LevelOperator, blocks: LevelBox) -> Bottom | None:
    """Return the solve with sparse factors; None with too many unknowns, or a singular matrix."""
    if blocks.whole.count > _FACTORISED.get(blocks.nodes.axes, 0):
        return None
    matrix, places = level.matrix(blocks.exchange(level.inverse))
    try:
        factors = scipy.sparse.linalg.splu(matrix)
    except RuntimeError:  # of SuperLU, for a pivot that is zero
        return None
    pivots = abs(factors.U.diagonal())
    if not pivots.min() > len(pivots) * np.finfo(float).eps * pivots.max():
        return None
    return lambda b: torch.from_numpy(factors.solve(b.cpu().numpy())).to(b.device), places


def _graph(run: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Return a recorded graph of the calls on a GPU, which runs them by one."""
    with torch.cuda.device(device):
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            run()  # libraries initialise themselves
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
    return graph.replay


def _inverse(level: LevelOperator, blocks: LevelBox) -> Bottom:
    """Return the product with the inverse of a level's matrix, in float64, and the places of its unknowns.

    Where finer nodes lie in a sheet between two coarse ones, these can differ without an effect, and the matrix is singular;
    right-hand sides have nothing of that. It is inverted with a diagonal of ones, and no eigenvalue below rounding.
    """
    sparse, places = level.matrix(blocks.exchange(level.inverse))
    if not len(places):  # an axis of a few nodes has none that are coarser
        return torch.clone, places
    matrix = torch.from_numpy(sparse.toarray())  # on the host: it is small, and inverted once
    diagonal = matrix.diagonal()
    # Zero but for rounding, below zero too, where outlines leave next to nothing of a coarse function: it stays zero.
    unit = torch.where(diagonal > 0, diagonal.rsqrt(), 0.0)
    scaled = unit[:, None] * matrix * unit
    rounding = len(matrix) * torch.finfo(matrix.dtype).eps
    factor, failed = torch.linalg.cholesky_ex(scaled)
    if level.directed:
        inverse, failed = torch.linalg.inv_ex(scaled)
        if not scaled.isfinite().all():
            inverse = scaled  # so that the iteration ends with its own status
        elif failed or not float(inverse.norm() * scaled.norm()) * rounding < 1:
            inverse = torch.linalg.pinv(scaled, rtol=rounding)
        inverse = unit[:, None] * inverse * unit
    elif not failed and factor.diagonal().square().min() > rounding:  # cheaper than eigenvalues
        inverse = torch.linalg.inv(matrix)
    else:
        values, vectors = torch.linalg.eigh(scaled)
        vectors = unit[:, None] * vectors
        inverse = (vectors / values.clamp(min=rounding * float(values[-1]))) @ vectors.T
    inverse = inverse.to(places.device)
    return lambda b: inverse @ b, places
