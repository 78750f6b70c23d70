r"""The two-level iteration with local solvers that are not linear.

An iteration is $v \to T v + T' P c$: a sweep of all local solvers, and a coarse correction swept by their
derivative, where $A c = R (T v - v)$ and $A = R (I - T') P$, as in `fixed_point`. The derivative in the
directions of the hats, $T' P$, is that of each subdomain at the first values, and taken anew when the updates fall
slower than those of a linear equation do, far from where it was taken. What remains is linear convergence, which Anderson's acceleration
makes faster. Where $R (T v - v)$ has not fallen, half of the last step is tried, and so on.
"""

import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.coarsening import Coarsening
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.transfer import Batch, Transfer, batch_shape, batches
from mosaicdd.local_solvers.nonlinear.nonlinear import NonlinearPlan
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.coarse.coarse_solve import ReplicatedSolve, factorised
from mosaicdd.schwarz.drivers import AndersonMemory
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopping import Monitor
from mosaicdd.schwarz.stopwatch import Stopwatch
from mosaicdd.schwarz.sweep import interface_exchange

_SLOW = 0.2  # ratio of updates above which the derivative is taken anew
_FASTER = 0.7  # part of the ratio before, below which that has helped
_NEAR = 1e-2  # relative update below which a derivative is as good as one taken anew
_SHORTEST = 2.0**-6
# Lattice nodes around a centre, in the order of the hats on a perimeter: rows, columns.
_AROUND = ((-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1))


class NonlinearIteration:
    """The sweep, its derivative, and the coarse correction, on the block of a rank.

    Parameters
    ----------
    settings
        Of which batches, device and precision count; the precision is float64.
    """

    def __init__(
        self,
        ranks: Ranks,
        block: Block,
        plan: NonlinearPlan,
        settings: SolveSettings,
        clock: Stopwatch,
    ):
        tensors = settings.tensors
        self._ranks, self._block, self._plan = ranks, block, plan
        self._transfer = Transfer(block, **tensors)
        self._members = list(batches(block.ring(0), settings.batch_subdomains))
        largest = max((np.prod(batch_shape(one)) for one in self._members), default=0)
        m = block.lattice.subdomain.cells
        self._perimeters = torch.empty(int(largest), 4 * m, **tensors)
        self._lines = torch.empty(int(largest), 2 * (m - 1), **tensors)
        self._exchange = interface_exchange(ranks, block, settings)
        coarsening = Coarsening(block.lattice, 1)
        coarse = coarsening.block(block)
        self._correction = Interface(coarse, **tensors)
        self._coarse_transfer = Transfer(coarse, **tensors)
        self._around = torch.empty(int(largest), 8, **tensors)
        self._responses: list[torch.Tensor] = []
        self._inverse = lambda nodes: nodes
        self._coarse = ReplicatedSolve(
            ranks, block, coarsening, lambda nodes: self._inverse(nodes), 1, clock
        )
        self._solving, self._moving = clock.part("local_solve"), clock.part("gather_scatter")
        self._linearising, self._factorising = clock.part("responses"), clock.part("coarse")

    def __call__(self, v: Interface, out: Interface) -> torch.Tensor:
        """Write ``T v + T' P c`` to ``out``; return ``R (T v - v)``, ``(1, rows, columns)``."""
        self._clear(out)
        for batch in self._members:
            g, values = self._restricted(v, batch)
            with self._solving:
                self._plan.solve(batch, g, values)
            self._blend(values, batch, out)
        return self._corrected(v, out)

    def step(self, changes: Sequence[torch.Tensor], out: Interface) -> None:
        """Write the step that given changes of the centre lines, ``(B, L)`` of each batch, lead to."""
        self._clear(out)
        for batch, values in zip(self._members, changes, strict=True):
            self._blend(values, batch, out)
        self._corrected(out.like(), out)

    @property
    def closely(self) -> bool:
        """Whether a derivative taken anew may be better than that at the first values."""
        return self._plan.closely

    @property
    def members(self) -> list[Batch]:
        """The batches of this rank's subdomains."""
        return self._members

    def outside(self, v: Interface) -> torch.Tensor | None:
        """Say which subdomains are outside of the training range, ``(rows, columns)``."""
        found = torch.zeros(self._block.region_subdomains, dtype=torch.bool, device=v.flat.device)
        for batch in self._members:
            outside = self._plan.outside(batch, self._restricted(v, batch)[0])
            if outside is None:
                return None
            found[batch] = outside.view(batch_shape(batch))
        return found[self._block.ring(0)]

    def linearise(self, v: Interface, *, closely: bool) -> None:
        """Take the derivative at other values, ``closely`` or not, and factorise the coarse problem.

        Where there is no derivative, no values follow: the next iteration ends with NaN.
        """
        rows = []
        self._responses = []
        with self._linearising:
            for batch in self._members:
                g = self._restricted(v, batch)[0]
                found = self._plan.responses(batch, g, closely=closely)
                rows.append(found[:, :, self._block.lattice.spacing - 1].cpu())
                self._responses.append(found.float())
        with self._factorising:
            matrix = self._assembled(rows)
            sound = np.isfinite(matrix.data).all()
            self._inverse = factorised(matrix) if sound else lambda nodes: nodes * math.nan

    def _assembled(self, mine: list[torch.Tensor]) -> scipy.sparse.csc_array:
        """Return the coarse operator of the whole lattice from the responses at the centres."""
        block, counts = self._block, self._block.lattice.subdomains
        own = np.zeros((*block.region_subdomains, 8))
        for batch, rows in zip(self._members, mine, strict=True):
            own[batch] = rows.numpy().reshape(*batch_shape(batch), 8)
        everywhere = self._ranks.allgather((block.start, own[block.ring(0)]))
        stencil = np.zeros((*counts, 8))
        for (i, j), part in everywhere:
            stencil[i - 1 : i - 1 + part.shape[0], j - 1 : j - 1 + part.shape[1]] = part
        number = np.pad(np.arange(np.prod(counts)).reshape(counts), 1, constant_values=-1)
        here, there, values = [], [], []
        for (di, dj), response in zip(_AROUND, np.moveaxis(stencil, 2, 0), strict=True):
            other = number[1 + di : 1 + di + counts[0], 1 + dj : 1 + dj + counts[1]]
            inside = other >= 0
            here.append(number[1:-1, 1:-1][inside])
            there.append(other[inside])
            values.append(-response[inside])
        size = int(np.prod(counts))
        places = np.concatenate(here), np.concatenate(there)
        matrix = scipy.sparse.coo_array((np.concatenate(values), places), shape=(size, size))
        return matrix.tocsc() + scipy.sparse.eye_array(size, format="csc")

    def _clear(self, out: Interface) -> None:
        for axis, lines in enumerate(out.lines):
            lines[:, *self._block.inner(axis)].zero_()

    def _restricted(self, v: Interface, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the perimeters of a batch, and the buffer for its centre lines."""
        count = int(np.prod(batch_shape(batch)))
        g = self._perimeters[:count]
        with self._moving:
            self._transfer.restrict(v, batch, g)
        return g, self._lines[:count]

    def _blend(self, values: torch.Tensor, batch: Batch, out: Interface) -> None:
        with self._moving:
            self._transfer.weigh(values, batch)
            self._transfer.add(values, batch, out)

    def _corrected(self, v: Interface, out: Interface) -> torch.Tensor:
        """Add the coarse correction to ``out``, and what the neighbours contribute."""
        residual = out.nodes() - v.nodes()
        self._coarse(residual.flatten(1), np.empty(0), self._correction)
        for batch, responses in zip(self._members, self._responses, strict=True):
            around, values = self._around[: len(responses)], self._lines[: len(responses)]
            self._coarse_transfer.restrict(self._correction, batch, around)
            with self._solving:
                values.copy_(torch.bmm(around[:, None].float(), responses)[:, 0])
            self._blend(values, batch, out)
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
