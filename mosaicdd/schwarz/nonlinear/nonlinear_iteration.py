r"""The two-level iteration with local solvers that are not linear.

An iteration is $v \to T v + T' P c$: a sweep of all local solvers, and a coarse correction swept by their
derivative, where $A c = R (T v - v)$ and $A = R (I - T') P$, as in `fixed_point`. The derivative in the
directions of the hats, $T' P$, is that of each subdomain at the first values, and taken anew when the updates fall
slower than those of a linear equation do, far from where it was taken. What remains is linear convergence, which Anderson's acceleration
makes faster. Where $R (T v - v)$ has not fallen, half of the last step is tried, and so on.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.transfer import Batch, batch_shape
from mosaicdd.local_solvers.nonlinear.nonlinear import NonlinearPlan, Share
from mosaicdd.parallel.even_shares import evenly
from mosaicdd.schwarz.coarse.coarse_space import OwnCoarseSpace
from mosaicdd.schwarz.drivers import AndersonMemory
from mosaicdd.schwarz.stopping import Monitor
from mosaicdd.schwarz.sweep import BatchBuffers, Task, interface_exchange

_SLOW = 0.2  # ratio of updates above which the derivative is taken anew
_FASTER = 0.7  # part of the ratio before, below which that has helped
_NEAR = 1e-2  # relative update below which a derivative is as good as one taken anew
_SHORTEST = 2.0**-6  # part of a step


class NonlinearIteration:
    """The sweep, its derivative, and the coarse correction, of one problem on the block of a rank, in float64.

    ``members``: the batches of this rank's subdomains.
    """

    def __init__(self, task: Task, plan: NonlinearPlan):
        self._block, self._plan = task.block, plan
        self._buffers = BatchBuffers(task)
        self.members = self._buffers.batches(task.block.ring(0))
        self._exchange = interface_exchange(task.ranks, task.block, task.settings)
        self._coarse = OwnCoarseSpace(task)
        self._share: Share = functools.partial(evenly, ranks=task.ranks)
        self._solving = task.clock.part("local_solve")
        self._linearising = task.clock.part("responses")

    def __call__(self, v: Interface, out: Interface) -> torch.Tensor:
        """Write ``T v + T' P c`` to ``out``; return ``R (T v - v)``, ``(1, rows, columns)``."""
        self._clear(out)
        for batch in self.members:
            g, values = self._buffers.restricted(v, batch)
            with self._solving:
                self._plan.solve(batch, g, values)
            self._buffers.blend(values, batch, out)
        with self._solving:
            rest = list(self._plan.rest(self._share))
        for batch, values in rest:
            self._buffers.blend(values, batch, out)
        return self._corrected(v, out)

    def step(self, changes: Sequence[torch.Tensor], out: Interface) -> None:
        """Write the step that given changes of the centre lines, ``(B, L)`` of each batch, lead to."""
        self._clear(out)
        for batch, values in zip(self.members, changes, strict=True):
            self._buffers.blend(values, batch, out)
        self._corrected(out.like(), out)

    @property
    def closely(self) -> bool:
        """Whether a derivative taken anew may be better than that at the first values."""
        return self._plan.closely

    @property
    def left(self) -> torch.Tensor:
        """How far from convergence the last iteration left each of this rank's subdomains, ``(rows, columns)``."""
        return self._plan.left[self._block.ring(0)]

    def outside(self, v: Interface) -> torch.Tensor | None:
        """Say which subdomains are outside of the training range, ``(rows, columns)``."""
        beyond = torch.zeros(self._block.region_subdomains, dtype=torch.bool, device=v.flat.device)
        for batch in self.members:
            outside = self._plan.outside(batch, self._buffers.restricted(v, batch)[0])
            if outside is None:
                return None
            beyond[batch] = outside.view(batch_shape(batch))
        return beyond[self._block.ring(0)]

    def linearise(self, v: Interface, *, closely: bool) -> None:
        """Take the derivative at other values, ``closely`` or not, and factorise the coarse problem.

        Where there is no derivative, no values follow: the next iteration ends with NaN.
        """
        m, s = self._block.lattice.subdomain.cells, self._block.lattice.spacing
        shape = self._block.region_subdomains
        responses = v.flat.new_zeros(*shape, 8, 2 * (m - 1), dtype=torch.float32)
        centre = v.flat.new_zeros(8, *shape)

        def at_once() -> Iterator[tuple[Batch, torch.Tensor]]:
            for batch in self.members:
                g = self._buffers.restricted(v, batch)[0]
                yield batch, self._plan.responses(batch, g, closely=closely)

        with self._linearising:
            rest = self._plan.rest(self._share, responses=True)
            for batch, derivative in itertools.chain(at_once(), rest):
                derivative = derivative.unflatten(0, batch_shape(batch))
                responses[batch] += derivative.float()
                centre[:, *batch] += derivative[..., s - 1].movedim(2, 0).to(centre)
        self._coarse.take(responses, centre[:, *self._block.ring(0)])

    def _clear(self, out: Interface) -> None:
        for axis, lines in enumerate(out.lines):
            lines[:, *self._block.inner(axis)].zero_()

    def _corrected(self, v: Interface, out: Interface) -> torch.Tensor:
        """Add the coarse correction to ``out``, and what the neighbours contribute."""
        residual = out.nodes() - v.nodes()
        self._coarse.correct(v, out, residual, np.empty(0), alone=False)
        for batch in self.members:
            values = self._buffers.centre_lines(batch)
            self._coarse.sweep(batch, values)
            self._buffers.blend(values, batch, out)
        self._exchange.add(out.lines)
        return residual


def drive(
    iterate: NonlinearIteration, v: Interface, monitor: Monitor
) -> tuple[Interface, list[str]]:
    """Repeat the iteration until it ends; return the last values, and their status."""
    image, base, direction = v.like_boundary(), v.like(v.flat.clone()), v.like()
    length, slow, before, last, taken = 1.0, True, np.inf, np.inf, 0
    memory = AndersonMemory(v)
    helps, rate = iterate.closely, 1.0  # whether derivatives taken anew make updates fall faster
    while True:
        if slow:
            iterate.linearise(v, closely=bool(monitor.history.update))
            taken = monitor.iterations
        residual = iterate(v, image)
        if monitor.record(v, image, residual):
            return image, monitor.final_statuses
        update, left = monitor.history.update[-1], monitor.history.residual[-1]
        if not left < before and length > _SHORTEST:
            length, slow = length / 2, False
            torch.add(base.flat, direction.flat, alpha=length, out=v.flat)
            continue
        helps = helps and not (slow and update > _FASTER * rate * last)
        far = max(monitor.history.update[taken:]) > _NEAR * monitor.size
        slow = helps and far and not slow and update > _SLOW * last
        rate = min(update / last, 1.0)
        memory.add(v.flat, image.flat)
        base.flat.copy_(v.flat)
        v.flat.copy_(memory.combine(monitor))
        torch.sub(v.flat, base.flat, out=direction.flat)
        length, before, last = 1.0, left, update
