"""What flows through a network, from face to face or through a cell that repeats itself, and a judge that ends an iteration where both flows agree."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices, within
from mosaicdd.report.progress import Progress
from mosaicdd.schwarz.multigrid.judge import Judge
from mosaicdd.schwarz.multigrid.node_system import NodeSystem
from mosaicdd.schwarz.settings import StoppingRule

_AIM = 1e-3  # the relative residual at which flows are looked at first
_FURTHER = (
    0.05,
    0.5,
)  # of the last residual, where they do not agree yet; they come closer as that falls


@dataclass(frozen=True)
class Surface:
    """The edges of this rank across a surface, from nodes with values to others, and how far values rise at it.

    Parameters
    ----------
    k
        Conductances, in the equations, ``(T,)`` in float64.
    rise
        By how much the values before it are larger than those that the nodes say: the value of a face, or of a cell the
        difference between its repetitions.
    first, last
        Places of the nodes before it and after it, ``(T,)``; None where a face is in their place.
    """

    k: torch.Tensor
    rise: float
    first: torch.Tensor | None
    last: torch.Tensor | None

    @classmethod
    def of(
        cls,
        system: NodeSystem,
        k: np.ndarray,
        nodes: Slices,
        rise: float,
        *,
        first: Sequence[int] | None,
        last: Sequence[int] | None,
    ) -> "Surface":
        """Return that of conductances at some nodes, and by how many nodes those before and after it are away from these."""
        there = np.nonzero(k)
        at = [n + part.start for n, part in zip(there, nodes, strict=True)]

        def places(away: Sequence[int] | None) -> torch.Tensor | None:
            if away is None:
                return None
            return system.nodes.places([n + more for n, more in zip(at, away, strict=True)])

        here = torch.from_numpy(k[there].astype(float))
        return cls(here.to(system.nodes.new(torch.int8).device), rise, places(first), places(last))

    def flow(self, x: torch.Tensor) -> float:
        """Return what flows across it on this rank; copies are right."""
        flat = x.view(-1)
        drop = torch.full_like(self.k, self.rise)
        if self.first is not None:
            drop += flat[self.first]
        if self.last is not None:
            drop -= flat[self.last]
        return float(torch.dot(self.k, drop))


class ThroughFlow:
    """What flows through a medium, measured at cuts; the first two are passed by all of it.

    ``drives``: where a rise acts on nodes of this rank, and what it adds to the right-hand side there: places and
    amounts.
    """

    def __init__(
        self,
        system: NodeSystem,
        cuts: Sequence[Surface],
        drives: Sequence[tuple[torch.Tensor | None, torch.Tensor]],
    ):
        self._system, self._cuts, self._drives = system, cuts, drives

    @classmethod
    def from_face_to_face(
        cls, system: NodeSystem, faces: Sequence[Slices], held: np.ndarray, part: Slices
    ) -> "ThroughFlow":
        """Return that between the faces of a medium, of which the low one has the value 1 and the other 0.

        Parameters
        ----------
        faces
            The voxels of this rank at the low face and at the high one.
        held, part
            Conductances from voxels to the faces, in the equations; of a part of the medium.
        """
        into, out = faces
        both = into == out  # a single layer, which leads to each by half of what it has
        k = [held[within(face, part)] / (1 + both) for face in faces]
        here = (0,) * len(part)
        first = Surface.of(system, k[0], into, 1.0, first=None, last=here)
        last = Surface.of(system, k[1], out, 0.0, first=here, last=None)
        return cls(system, [first, last], [(first.last, first.k)])

    @classmethod
    def through_cell(
        cls,
        system: NodeSystem,
        axis: int,
        along: Sequence[np.ndarray],
        part: Slices,
        own: Slices,
        shape: Sequence[int],
        goes_round: Callable[[int, Slices], np.ndarray] | None,
    ) -> "ThroughFlow":
        """Return that along an axis of a cell, whose repetition after it has values lower by 1.

        The cuts are behind the last voxels, in the middle, and behind the last voxels along all axes.

        Parameters
        ----------
        along
            Per axis, the conductances between the voxels of a part, in the equations.
        own
            The voxels of this rank.
        shape
            Voxels of the cell per axis.
        goes_round
            What tells of some of this rank's voxels whether something flows through them along an axis: what leads to no
            repetition along it lets nothing through. By default all do.
        """

        def behind(other: int, number: int, end: int = 0) -> Surface:
            """Return the edges behind some voxels along an axis, of which this rank owns the first ends or the last."""
            p = own[other]
            mine = p.start <= number + end < p.stop
            layer = slice(number, number + 1) if mine else slice(p.start, p.start)
            nodes = (*own[:other], layer, *own[other + 1 :])
            step = tuple(int(other == each) for each in range(len(own)))
            k, here = along[other][within(nodes, part)], (0,) * len(own)
            if goes_round is not None and other != axis:
                k = k * goes_round(other, nodes)
            rise = float((other, number) == (axis, shape[axis] - 1))
            return Surface.of(system, k, nodes, rise, first=here, last=step)

        seams = [behind(other, count - 1) for other, count in enumerate(shape)]
        seam, after = seams[axis], behind(axis, -1, end=1)
        cuts = [seam, behind(axis, shape[axis] // 2 - 1), *seams]
        return cls(system, cuts, [(seam.first, -seam.k), (after.last, after.k)])

    def right_hand_side(self) -> tuple[torch.Tensor, float]:
        """Return it, a vector, and its norm over all ranks."""
        system = self._system
        b = system.vector()
        for places, amounts in self._drives:
            if places is not None:
                b.view(-1).index_add_(0, places, amounts)
        (square,) = system.blocks.ranks.sum(np.array([system.square(b)]))
        return b, float(np.sqrt(square))

    def __call__(self, x: torch.Tensor) -> tuple[float, ...]:
        """Return what flows through the cuts, as the equations measure it; all ranks together."""
        if self._system.copies is not None:
            self._system.copies.refresh(x)
        flows = np.array([cut.flow(x) for cut in self._cuts])
        return tuple(self._system.blocks.ranks.sum(flows).tolist())


class FlowJudge(Judge):
    """Ends an iteration where what flows in is what flows out, to a relative tolerance."""

    def __init__(
        self,
        flow: ThroughFlow,
        rtol: float,
        max_iterations: int,
        system: NodeSystem,
        progress: Callable[[int, float], None] | None,
    ):
        rule = StoppingRule(_AIM, 0.0, max_iterations)

        def shown(iteration: int, update: float, size: float, mae: float) -> None:
            if progress is not None:
                progress(iteration, self.history.residual[-1])

        # Residuals of conjugate gradients rise now and then, while the energy of errors falls.
        patience = max_iterations
        super().__init__(rule, None, shown, None, lambda *_: None, system.size_here, patience)
        self._flow, self._rtol = flow, rtol

    def confirms(self, x: torch.Tensor) -> bool:
        """Say whether the flows agree; if not, aim at a smaller residual."""
        into, out = self._flow(x)[:2]
        apart, enough = abs(into - out), self._rtol * max(into, out)
        if apart <= enough:
            return True
        if self.history.residual:  # aggregates alone may have made the first one small
            self.go_on(enough / apart)
        return False

    def go_on(self, factor: float) -> None:
        """Aim at a smaller residual, so many times the last one as far as that is sensible."""
        least, most = _FURTHER
        self.aim = min(max(factor, least), most) * self.history.residual[-1]


def shown(
    show: Progress, rtol: float, name: str, number: int, count: int
) -> Callable[[int, float], None]:
    """Return what shows the iterations of one of so many axes, on a logarithmic scale, as if residuals fell to the tolerance."""

    def of_iteration(iteration: int, residual: float) -> None:
        done = min(max(math.log(residual) / math.log(rtol), 0.0), 1.0) if residual > 0 else 1.0
        show((number + done) / count, f"{name}: iteration {iteration}, residual {residual:.1e}")

    return of_iteration
