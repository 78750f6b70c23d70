"""The effective conductivity of a medium along its axes, and the flows of which it is made.

Flows go from face to face, or through a cell that repeats itself; an iteration ends where inflow and outflow agree.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from mosaicdd.axes import Slices, times, within
from mosaicdd.report.progress import Progress
from mosaicdd.solvers.monitor import ResidualMonitor
from mosaicdd.solvers.multigrid.node_system import NodeEquations
from mosaicdd.solvers.settings import CONVERGED, StoppingRule

NO_PATH = "no_path"
"""The status where nothing leads from face to face: the conductivity is 0."""


@dataclass(frozen=True)
class AxisConductivity:
    """The effective conductivity of a medium along one axis.

    Parameters
    ----------
    conductivity
        The effective one: the mean flux for a mean slope of 1.
    error
        A bound of its error, by which it may be too large; of the equations' solution, not of the grid's. An estimate where the
        iteration has not converged.
    inflow, outflow
        What flows in where the face has the value 1, and out where it has 0, as mean fluxes: conductivities, too. In a periodic
        cell what flows from it to the next one, and through its middle.
    tortuosity
        Of a medium where all that conducts has the same conductivity: the factor ``D e / D_eff`` with ``e`` the volume fraction of all that
        conducts; infinite without a path, None in other media.
    wiener
        The harmonic and the arithmetic mean: layers across the axis and along it.
    floating
        Share of the conducting voxels that no path connects to both faces: they are left out, as nothing flows there.
    status
        As of `Solution`; ``no_path`` where nothing leads from face to face, and the conductivity is 0.
    iterations, residual
        Of conjugate gradients; the true residual, relative to the right-hand side.
    seconds
        Set-up and iterations.
    across
        Of a periodic cell, by the other axes' names, the mean fluxes along these, which the tensor has beside its diagonal; where
        both axes were solved for, right to the root of the product of their errors.
    field
        The values at the voxels' middles, of this rank's voxels; NaN at those that are left out. None unless asked
        for.
    """

    conductivity: float
    error: float
    inflow: float
    outflow: float
    tortuosity: float | None
    wiener: tuple[float, float]
    floating: float
    status: str
    iterations: int
    residual: float
    seconds: float
    across: dict[str, float] = field(default_factory=dict)
    field: np.ndarray | None = None

    @property
    def converged(self) -> bool:
        """Whether the flows agree, and the error is bounded, to the tolerance that was asked for; or there is no path."""
        return self.status in (*CONVERGED, NO_PATH)

    @property
    def balance(self) -> float:
        """The difference of inflow and outflow, relative to the larger."""
        size = max(abs(self.inflow), abs(self.outflow))
        return abs(self.inflow - self.outflow) / size if size else 0.0

    def __str__(self) -> str:
        """Return a line with conductivity, tortuosity and status."""
        if self.status == NO_PATH:
            return "0: no path leads from face to face"
        words = [f"{self.conductivity:.6g}"]
        if self.tortuosity is not None:
            words.append(f"tortuosity {self.tortuosity:.5g}")
        words.append(f"in and out differ by {self.balance:.0e}")
        if self.floating:
            words.append(f"{self.floating:.2%} float")
        words.append(f"{self.status} after {self.iterations} iterations")
        return ", ".join(words)


@dataclass(frozen=True)
class Effective:
    """The effective conductivity of a medium: a tensor, diagonal but of a periodic cell, or some of its axes.

    ``result["x"]`` is what is known along x.

    Parameters
    ----------
    axes
        By name, in the order of arrays: z, y, x.
    voxels
        Per axis, in the order of arrays.
    spacing
        Their sides.
    volume_fraction
        Share of the voxels that conduct.
    hashin_shtrikman
        Bounds where the medium is isotropic and has two conductivities, of which one may be 0: of any structure that has no
        preferred direction; else None.
    """

    axes: dict[str, AxisConductivity]
    voxels: tuple[int, ...]
    spacing: tuple[float, ...]
    volume_fraction: float
    hashin_shtrikman: tuple[float, float] | None

    def __getitem__(self, axis: str) -> AxisConductivity:
        """Return the conductivity along an axis."""
        if axis not in self.axes:
            raise KeyError(f"axis {axis!r} was not solved for, only {', '.join(self.axes)}")
        return self.axes[axis]

    @property
    def conductivity(self) -> dict[str, float]:
        """The effective conductivities, by the axes' names."""
        return {name: along.conductivity for name, along in self.axes.items()}

    @property
    def tortuosity(self) -> dict[str, float]:
        """The tortuosity factors; NaN in media that have none."""
        factors = {name: along.tortuosity for name, along in self.axes.items()}
        return {name: math.nan if t is None else t for name, t in factors.items()}

    @property
    def tensor(self) -> np.ndarray:
        """The tensor, in the order of arrays, ``(axes, axes)``; NaN along axes that were not solved for.

        A column has the mean fluxes for a mean slope of 1 along its axis; beside the diagonal it is 0 but of a periodic cell.
        """
        names = "zyx"[-len(self.voxels) :]
        tensor = np.diag([self.conductivity.get(name, math.nan) for name in names])
        for name, along in self.axes.items():
            for other, flux in along.across.items():
                tensor[names.index(other), names.index(name)] = flux
        return tensor

    @property
    def converged(self) -> bool:
        """Whether all axes have converged."""
        return all(along.converged for along in self.axes.values())

    def __str__(self) -> str:
        """Return a line for the medium and for each axis."""
        head = f"{times(self.voxels)} voxels, {self.volume_fraction:.2%} conduct"
        return "\n".join([head, *(f"{name}: {along}" for name, along in self.axes.items())])


_AIM = 1e-3  # the relative residual at which flows are looked at first
_FURTHER = (
    0.05,
    0.5,
)  # of the last residual, where they do not agree yet; they come closer as that falls


@dataclass(frozen=True)
class Surface:
    """The edges of this rank across a surface, and the rise of values at it.

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
        system: NodeEquations,
        k: np.ndarray,
        nodes: Slices,
        rise: float,
        *,
        first: Sequence[int] | None,
        last: Sequence[int] | None,
    ) -> "Surface":
        """Return the surface of conductances at nodes; ``first``, ``last``: steps to the nodes before and after it."""
        conducting = np.nonzero(k)
        at = [n + part.start for n, part in zip(conducting, nodes, strict=True)]

        def places(away: Sequence[int] | None) -> torch.Tensor | None:
            if away is None:
                return None
            return system.nodes.places([n + more for n, more in zip(at, away, strict=True)])

        conductances = torch.from_numpy(k[conducting].astype(float))
        return cls(
            conductances.to(system.nodes.new(torch.int8).device), rise, places(first), places(last)
        )

    def flow(self, x: torch.Tensor) -> float:
        """Return the flow across it on this rank; copies are right."""
        flat = x.view(-1)
        drop = torch.full_like(self.k, self.rise)
        if self.first is not None:
            drop += flat[self.first]
        if self.last is not None:
            drop -= flat[self.last]
        return float(torch.dot(self.k, drop))


class ThroughFlow:
    """The flow through a medium, measured at cuts; all of it passes the first two.

    ``drives``: where a rise acts on nodes of this rank, and what it adds to the right-hand side there: places and
    amounts.
    """

    def __init__(
        self,
        system: NodeEquations,
        cuts: Sequence[Surface],
        drives: Sequence[tuple[torch.Tensor | None, torch.Tensor]],
    ):
        self._system, self._cuts, self._drives = system, cuts, drives

    @classmethod
    def from_face_to_face(
        cls, system: NodeEquations, faces: Sequence[Slices], held: np.ndarray, part: Slices
    ) -> "ThroughFlow":
        """Return the flow between two faces, of which the low one has the value 1, the other 0.

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
        no_step = (0,) * len(part)
        first = Surface.of(system, k[0], into, 1.0, first=None, last=no_step)
        last = Surface.of(system, k[1], out, 0.0, first=no_step, last=None)
        return cls(system, [first, last], [(first.last, first.k)])

    @classmethod
    def through_cell(
        cls,
        system: NodeEquations,
        axis: int,
        conductances: Callable[[int, Slices], np.ndarray],
        own: Slices,
        shape: Sequence[int],
    ) -> "ThroughFlow":
        """Return the flow along an axis of a cell, whose next repetition has values lower by 1.

        The cuts are behind the last voxels, in the middle, and behind the last voxels along all axes.

        Parameters
        ----------
        conductances
            Returns the conductances from some of this rank's voxels to the next ones along an axis, in the equations; zero
            where nothing flows through.
        own
            The voxels of this rank.
        shape
            Voxels of the cell per axis.
        """

        def behind(other: int, number: int, end: int = 0) -> Surface:
            """Return the edges behind a layer of voxels, of which this rank owns the first ends or the last."""
            p = own[other]
            mine = p.start <= number + end < p.stop
            layer = slice(number, number + 1) if mine else slice(p.start, p.start)
            nodes = (*own[:other], layer, *own[other + 1 :])
            step = tuple(int(other == along) for along in range(len(own)))
            rise = float((other, number) == (axis, shape[axis] - 1))
            no_step = (0,) * len(own)
            return Surface.of(
                system, conductances(other, nodes), nodes, rise, first=no_step, last=step
            )

        seams = [behind(other, count - 1) for other, count in enumerate(shape)]
        seam, after = seams[axis], behind(axis, -1, end=1)
        cuts = [seam, behind(axis, shape[axis] // 2 - 1), *seams]
        return cls(system, cuts, [(seam.first, -seam.k), (after.last, after.k)])

    def right_hand_side(self) -> tuple[torch.Tensor, float]:
        """Return the right-hand side, a vector, and its norm over all ranks."""
        system = self._system
        b = system.vector()
        for places, amounts in self._drives:
            if places is not None:
                b.view(-1).index_add_(0, places, amounts)
        (square,) = system.blocks.ranks.sum(np.array([system.square(b)]))
        return b, float(np.sqrt(square))

    def __call__(self, x: torch.Tensor) -> tuple[float, ...]:
        """Return the flows through the cuts, as the equations measure them; all ranks together."""
        if self._system.copies is not None:
            self._system.copies.refresh(x)
        flows = np.array([cut.flow(x) for cut in self._cuts])
        return tuple(self._system.blocks.ranks.sum(flows).tolist())


class FlowJudge(ResidualMonitor):
    """Ends an iteration where what flows in is what flows out, to a relative tolerance."""

    def __init__(
        self,
        flow: ThroughFlow,
        rtol: float,
        max_iterations: int,
        system: NodeEquations,
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
        """Aim at ``factor`` times the last residual, within bounds."""
        least, most = _FURTHER
        self.aim = min(max(factor, least), most) * self.history.residual[-1]


def shown(
    show: Progress, rtol: float, name: str, number: int, count: int
) -> Callable[[int, float], None]:
    """Return a function that shows the iterations of one axis on a logarithmic scale, from 1 to the tolerance."""

    def of_iteration(iteration: int, residual: float) -> None:
        done = min(max(math.log(residual) / math.log(rtol), 0.0), 1.0) if residual > 0 else 1.0
        show((number + done) / count, f"{name}: iteration {iteration}, residual {residual:.1e}")

    return of_iteration
