"""Trials of multigrid: on a square in the middle, before levels are made for the whole domain; on all of it after that.

All ranks have the square and try it, so what they find does not depend on how many there are.
"""

import math
from collections.abc import Sequence

import numpy as np

from mosaicdd.lattice.axes import Slices, common, within
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.schwarz.multigrid.blocks import Blocks
from mosaicdd.schwarz.multigrid.flexible_gradients import FlexibleGradients
from mosaicdd.schwarz.multigrid.judge import Judge
from mosaicdd.schwarz.multigrid.node_system import NodeSystem
from mosaicdd.schwarz.multigrid.shares import Shares
from mosaicdd.schwarz.multigrid.stabilised_gradients import gradients_of
from mosaicdd.schwarz.settings import StoppingRule

# Nodes of the square per axis; it is tried where there are as many more on each side. By so many iterations residuals
# must become so small: in smooth media, noise and channels of `scripts/media.py` they do, to 5e-9, 2e-3 and 3e-3, in its
# checkerboards, inclusions and SPE10 they are 0.06 at least (1024 x 1024).
_SIDE = 257
_FILLED = 0.5  # share of its nodes that have an unknown, at least: else it says little
_CONTRACTION, _TRIALS = 0.5, 8
# Ratio of the equations' numbers from which the whole domain is tried, too. From about 1e9 on, conductors that hold no coarse
# node and are not driven can be wrong to any degree beside sides that drive large flows, unseen in any residual relative
# to these. By constant sources they are seen: in mixtures of two phases, node by node, of 1e6 to 1e14, residuals fall
# by 0.65 an iteration at best, in the conductors of `scripts/media.py` by 0.35.
_CONTRAST = 1e6
# Ratios of couplings side by side, and of those of one node along two axes, up to which it need not be tried: coarse levels see
# what varies. Ratios of axes above 15 or so fail the trial: from 20 on elements solve again sooner (smooth, 1024 x 1024).
_TAME, _ALIKE = 1.5, 2.0


class SlowError(Exception):
    """In this medium coarse levels do not know the slow errors: on all ranks."""


def require_contraction(
    ranks: Ranks,
    between: Conductances,
    active: np.ndarray | None,
    own: Slices,
    place: Slices,
    nodes: Sequence[int],
    colours: int,
) -> None:
    """Check that multigrid contracts well in the middle of the domain, as far as that tells; all ranks together.

    Parameters
    ----------
    between, active
        Of a part of the grid.
    own, place
        Nodes of the grid: those that this rank owns, and those of the part.
    nodes
        Of the grid, per axis.
    colours
        Of a sweep.

    Raises
    ------
    SlowError
        If it does not.
    """
    if len(nodes) > 2 or any(count < 3 * _SIDE for count in nodes):
        return  # there is no other way in space; or the first iterations tell it as soon
    middle = tuple(slice((count - _SIDE) // 2, (count + _SIDE) // 2) for count in nodes)
    mine = common(own, middle)
    here = all(part.start < part.stop for part in mine)

    def gathered(values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """Return what starts at the square's nodes, each from the rank that owns this one."""
        total = np.zeros(shape)
        if here:
            ends = zip(within(mine, middle), within(mine, place), shape, strict=True)
            pairs = [(t, p, min(t.stop, n) - t.start) for t, p, n in ends]
            there = tuple(slice(t.start, t.start + n) for t, _, n in pairs)
            total[there] = values[tuple(slice(p.start, p.start + n) for _, p, n in pairs)]
        return ranks.sum(total)

    axes = len(nodes)
    whole = [_SIDE] * axes
    along = tuple(
        gathered(k, [_SIDE - (axis == other) for other in range(axes)])
        for axis, k in enumerate(between.along)
    )
    against = (
        ()
        if between.symmetric
        else tuple(
            gathered(k, k_along.shape) for k, k_along in zip(between.against, along, strict=True)
        )
    )
    if not against and active is None and _are_alike(along) and all(map(_is_tame, along)):
        return
    across = None
    if between.across is not None:
        across = np.stack([gathered(k, [_SIDE - 1] * axes) for k in between.across])
    square = Conductances(along, gathered(between.reaction, whole), against, across)
    unknown = None if active is None else gathered(active, whole) > 0
    if unknown is not None and unknown.mean() < _FILLED:
        return
    blocks = Blocks(Ranks.alone(), Shares([[(1, _SIDE - 2)]] * axes, colours))
    system = NodeSystem(blocks, square, [0] * axes, unknown)
    b = np.ones([_SIDE - 2] * axes)  # of which slow errors are the larger part
    if unknown is not None:
        b *= unknown[(slice(1, -1),) * axes]
    history = _tried(gradients_of(system), b, float(np.linalg.norm(b)))
    if not history[-1] <= _CONTRACTION**_TRIALS:
        raise SlowError


def require_contraction_everywhere(gradients: FlexibleGradients) -> None:
    """Check that multigrid contracts in all of a medium of high contrast; all ranks together.

    Raises
    ------
    SlowError
        If it does not.
    """
    system = gradients.system
    if gradients.alone or system.scale <= _CONTRAST * system.least:
        return
    history = _tried(gradients, system.ones, math.sqrt(system.unknowns))
    largest = max(1.0, *history)  # as first steps may enlarge it
    if not history[-1] <= _CONTRACTION ** (_TRIALS - 1) * largest:
        raise SlowError


def _tried(gradients: FlexibleGradients, b: np.ndarray, size: float) -> list[float]:
    """Return relative residuals of first iterations for a right-hand side in the box."""
    system = gradients.system
    rule = StoppingRule(_CONTRACTION**_TRIALS, 0.0, _TRIALS)
    judge = Judge(rule, None, None, None, lambda x, history: None, system.size_here)
    gradients(system.vector(b), system.vector(), size, judge)
    return judge.history.residual


def _are_alike(along: Sequence[np.ndarray]) -> bool:
    """Say whether couplings of a node along different axes differ little."""
    shape = tuple(slice(0, _SIDE - 1) for _ in along)
    least, *others = (k[shape] for k in along)
    largest = least
    for k in others:
        least, largest = np.minimum(least, k), np.maximum(largest, k)
    return bool((largest <= _ALIKE * least).all())


def _is_tame(couplings: np.ndarray) -> bool:
    """Say whether positive couplings along an axis differ little from those beside them."""
    if not couplings.min() > 0:
        return False
    for axis in range(couplings.ndim):
        here, beside = (
            np.moveaxis(couplings, axis, 0)[part] for part in (slice(1, None), slice(-1))
        )
        if (here > _TAME * beside).any() or (beside > _TAME * here).any():
            return False
    return True
