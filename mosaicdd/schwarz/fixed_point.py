"""The fixed point ``v = T v`` and the iteration that leads there, ``M v = T v + T P A^-1 R (T v - v)``.

| symbol | is | here |
|---|---|---|
| ``v`` | values on the lattice lines | `Interface` |
| ``T v`` | all local solvers, blended by the partition of unity | `Sweep.add_local_solutions` |
| ``R`` | injection at the coarse nodes | `Coarsening.sample` |
| ``A c = R (T v - v)`` | the coarse problem | `coarse_solve` |
| ``T P c`` | what hats of heights ``c`` become after a sweep | `CoarseSpace.sweep` |
| ``omega`` | relaxation: ``v + omega (M v - v)`` | `drivers` |

For a linear local solver ``M v = T (v + P c)`` (less what a source would add twice), so one sweep does
the work of two. ``M v = v`` only where ``T v = v``, linear or not: then ``R r = -R T P c`` for ``r = T v -
v``, which with ``A = R (I - T) P`` and ``A c = R r`` leaves ``c = 0``.

Ranks wait for each other as little as the method allows. Halos travel while the subdomains that do
not need them are solved; with a halo of depth ``k`` they travel in every ``k``-th iteration only, and
in between each rank computes what its neighbours would have sent. The numbers by which an iteration
is judged are added up in the one collective of the iteration after it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.axes import Slices, frame
from mosaicdd.schwarz.coarse_space import CoarseSpace
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.local_solvers.bound import BlockPlan
from mosaicdd.schwarz.monitor import UpdateSums
from mosaicdd.schwarz.sweep import Sweep, SweepContext, interface_exchange

_NOTHING = np.empty(0)


class Iteration(ABC):
    """The map ``M v``, computed at once or as one step of a sequence whose halos still travel."""

    _sweep: Sweep

    @property
    def affine(self) -> bool:
        """Whether a source adds to every ``M v``."""
        return self._sweep.affine

    def begin(self, v: Interface) -> None:
        """Begin a sequence, with values that are right on the perimeters of the own subdomains."""
        v.require()
        v.rings = 1

    @abstractmethod
    def advance(
        self,
        v: Interface,
        out: Interface,
        measure: UpdateSums | None = None,
        relaxation: float = 1.0,
    ) -> tuple[torch.Tensor, np.ndarray | None]:
        """Write ``v + omega (M v - v)`` to ``out``, as the next of a sequence.

        Values on the edge of the domain are kept.

        The halos of ``v`` may still travel, those of ``out`` do when it returns.
        ``measure``: of the iteration that led to ``v``, from what ``out`` holds; ``relaxation``: ``omega``.
        Returns ``R (T v - v)`` at the owned lattice nodes, ``(n, rows, columns)``, in a buffer that the next
        call overwrites; and the sum over the ranks of what ``measure`` gave.
        """

    @abstractmethod
    def finish(self) -> None:
        """Complete the values that `advance` wrote last."""

    def __call__(self, v: Interface, out: Interface) -> torch.Tensor:
        """Write all of ``M v`` to ``out``; return ``R (T v - v)`` as `advance`."""
        self.begin(v)
        residual, _ = self.advance(v, out)
        self.finish()
        return residual


class FixedPoint(Iteration):
    """The additive sweep and, with two levels, the coarse correction swept.

    ``coarse_space``: None for one level.
    """

    def __init__(self, task: SweepContext, plan: BlockPlan, coarse_space: CoarseSpace | None):
        block, clock = task.block, task.clock
        self._ranks = task.ranks
        self._coarse_space = coarse_space
        self._sweep = Sweep(task, plan)
        self._exchange = interface_exchange(task.ranks, task.block, task.settings, task.problems)
        self._inner = self._sweep.batches(block.inner_subdomains())
        self._outer = [
            [
                batch
                for part in frame(block.ring(ring), block.inner_subdomains())
                for batch in self._sweep.batches(part)
            ]
            for ring in range(block.halo)
        ]
        self._all = [self._sweep.batches(block.ring(ring)) for ring in range(block.halo)]
        self._sent: Interface | None = None  # its halos travel
        self._residual = torch.empty(task.problems, *block.subdomains, **task.tensors)
        # Per family of lines: what is complete before halos arrive, and all around it, to which the inner
        # subdomains do not contribute; and of that what is this rank's to start from, if it adds up its own only.
        axes = range(len(block.cells))
        self._settled = [block.settled(axis) for axis in axes]
        self._frame = [frame(block.inner(axis), self._settled[axis]) for axis in axes]
        self._late = [block.late(axis) for axis in axes]
        self._communicating = clock.part("communication")
        self._moving = clock.part("gather_scatter")
        self._travelling = clock.part("halo", "messages")

    def advance(
        self,
        v: Interface,
        out: Interface,
        measure: UpdateSums | None = None,
        relaxation: float = 1.0,
    ) -> tuple[torch.Tensor, np.ndarray | None]:
        """Write ``v + omega (M v - v)`` to ``out``; see `Iteration.advance`."""
        kept = 1.0 - relaxation
        if measure is not None:
            measure.settled()
        self._start_from(v, out, kept)  # out = (1 - omega) v
        # out += omega T v, while halos of v travel
        self._sweep.add_local_solutions(v, out, self._inner, relaxation)
        self.finish()
        v.require()
        ring = v.rings - 1
        mine = _NOTHING if measure is None else measure.rest()
        self._start_late(v, out, kept, self._frame if ring else self._late)
        self._sweep.add_local_solutions(v, out, self._outer[ring], relaxation)
        residual = torch.sub(out.nodes(), v.nodes(), out=self._residual)  # omega R (T v - v)
        if self._coarse_space is not None:
            totals = self._coarse_space.correct(  # A c = omega R (T v - v)
                v, out, residual, mine, alone=ring == 0
            )
            self._add_correction(self._coarse_space, out, ring)  # out += T P c
        elif measure is not None:
            with self._communicating:
                totals = self._ranks.sum(mine)
        if ring == 0:
            with self._communicating:
                self._exchange.start(out.lines)
            self._travelling.begin()
            self._sent = out
        out.rings = ring
        if kept:
            residual /= relaxation
        return residual, None if measure is None else totals

    def _start_from(self, v: Interface, out: Interface, kept: float) -> None:
        """Set ``out`` to a fraction of ``v`` where that is complete before halos arrive."""
        with self._moving:
            for old, new, settled in zip(v.lines, out.lines, self._settled, strict=True):
                if kept:
                    torch.mul(old[:, *settled], kept, out=new[:, *settled])
                else:
                    new[:, *settled].zero_()

    def _start_late(
        self, v: Interface, out: Interface, kept: float, parts: Sequence[Sequence[Slices]]
    ) -> None:
        """Set ``out`` around that to a fraction of ``v`` in some parts, else to zero."""
        with self._moving:
            for old, new, around, late in zip(v.lines, out.lines, self._frame, parts, strict=True):
                for part in around:
                    new[:, *part].zero_()
                for part in late if kept else ():
                    torch.mul(old[:, *part], kept, out=new[:, *part])

    def _add_correction(self, coarse_space: CoarseSpace, out: Interface, ring: int) -> None:
        """Add the coarse correction, swept, of the subdomains within a ring."""
        for batch in self._all[ring]:
            values = self._sweep.centre_lines(batch)
            coarse_space.sweep(batch, values)
            self._sweep.add_weighted(values, batch, out)

    def finish(self) -> None:
        """Wait for the halos, if they travel, and complete the values that `advance` wrote."""
        with self._communicating:
            self._exchange.finish()
        self._travelling.end()
        if self._sent is not None:
            self._sent.rings, self._sent = len(self._outer), None
