"""The quantities of a solution, in memory or in a file: flows, balances, energies, means and extremes."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mosaicdd.axes import within
from mosaicdd.problems.fields.given import real_array
from mosaicdd.problems.shapes.shape import has_values
from mosaicdd.problems.sides.conditions import Dirichlet
from mosaicdd.problems.sides.parts import EXAMPLES, SidePart, is_outline, part_of_name
from mosaicdd.problems.sides.sides import jumps_of
from mosaicdd.quantities.balance import (
    Balance,
    balance_of,
    dirichlet_energies,
    flows_out,
    outline_flows,
    with_unknowns_beyond,
)
from mosaicdd.quantities.control_volumes import ControlVolumes
from mosaicdd.quantities.side_flows import SideFlows
from mosaicdd.quantities.sums import FieldOnRank, Region, integrals
from mosaicdd.settings import require_type, unknown
from mosaicdd.unsupported import Unsupported


class Extreme(NamedTuple):
    """The largest or smallest value of a field, and where it is: the coordinates, that along x first."""

    value: float
    place: tuple[float, ...]


def edge_fluxes(field: FieldOnRank) -> tuple[np.ndarray, ...]:
    """Return the flux across grid edges of this process's part, per length of a whole face."""
    volumes = ControlVolumes(field.problem, field.grid)
    field = with_unknowns_beyond(volumes, field)
    _require_no_velocity(volumes, "a flux")
    wide = field.around(field.own)
    part_volumes = volumes.on(wide)
    u = np.where(part_volumes.present, field.at(wide), 0.0)
    fluxes = []
    for axis, flow in enumerate(part_volumes.edge_flows(u)):
        # Those that begin at this process's nodes.
        place = list(within(field.own, wide))
        at = place[axis]
        place[axis] = slice(at.start, min(at.stop, flow.shape[axis + 1]))
        fluxes.append(flow[:, *place] / (field.grid.spacing * field.grid.face(axis)))
    return tuple(fluxes)


def derivatives(field: FieldOnRank) -> tuple[np.ndarray, ...]:
    """Return the derivative along each axis at the nodes of this process's part."""
    wide = tuple(
        slice(max(p.start - 2, w.start), min(p.stop + 2, w.stop))
        for p, w in zip(field.own, field.wide, strict=True)
    )
    place = within(field.own, wide)
    return tuple(d[:, *place] for d in slopes(field.at(wide), field.grid.steps))


def outflow(field: FieldOnRank, name: str, part: tuple[float, float] | None) -> np.ndarray:
    """Return the flow out through a side or an outline, ``(n,)``; of the parts of this, those with conditions."""
    require_type("side", name, str, "the name of a side, or of a part of one")
    volumes, axes = ControlVolumes(field.problem, field.grid), len(field.grid.shape)
    if part is not None:
        if "[" in name or is_outline(name):
            raise ValueError(f"{name} has no part {part}: only whole sides have")
        name = f"{name}[{float(part[0])!r}:{float(part[1])!r}]"
    asked = SidePart(name, Dirichlet())
    if "[" in name:
        asked = part_of_name(name, Dirichlet(), axes)
        name = str(asked) if asked.where else asked.name
    field = with_unknowns_beyond(volumes, field)
    if is_outline(asked.name) and volumes.outline is not None:
        flows = outline_flows(volumes, field)
        if name == "outline":
            return flows.sum(axis=1)
        if name in volumes.outlines:
            return flows[:, volumes.outlines.index(name)]
    sides, conditions = SideFlows(volumes, field), volumes.problem.conditions
    periodic = name in [p.name for p in conditions.parts if p.condition.periodic]
    if periodic and any(jumps_of(conditions)):
        sides = SideFlows(volumes, field, name)
    elif periodic:
        raise ValueError(f"the side {name} is periodic: what flows out there comes in at the other")
    if name in sides.names:
        return volumes.scale * field.total(sides.total(asked))
    names = (*sides.names, *volumes.outlines, *(["outline"] if volumes.outlines else []))
    raise ValueError(
        unknown("side", name, names, f", and parts of sides as left[{EXAMPLES[axes]}]")
    )


def balances(field: FieldOnRank) -> list[Balance]:
    """Return the balance of each problem."""
    volumes = ControlVolumes(field.problem, field.grid)
    names, sums = flows_out(volumes, with_unknowns_beyond(volumes, field))
    return [balance_of(names, row) for row in volumes.scale * field.total(sums)]


def energies(field: FieldOnRank) -> np.ndarray:
    """Return half the integral of ``a |grad u|^2 + c u^2``, ``(n,)``; `Unsupported` if the equation is not linear."""
    volumes = ControlVolumes(field.problem, field.grid)
    if volumes.nonlinear is not None:
        raise Unsupported(
            f"{field.problem.equation.name} is not linear: half of a |grad u|^2 + c u^2 is an energy of linear equations"
        )
    _require_no_velocity(volumes, "an energy")
    return dirichlet_energies(volumes, with_unknowns_beyond(volumes, field))


def extremes(field: FieldOnRank, sign: float) -> list[Extreme]:
    """Return the largest value of each problem's field times ``sign``, and its first node; NaN if one is."""
    mine: dict[int, tuple[float, tuple[int, ...]]] = {}
    own = field.at(field.own)
    if own.size:
        everywhere = has_values(field.problem.domain.shape, field.grid, field.own, own)
        for number, (u, shown) in enumerate(zip(sign * own, everywhere, strict=True)):
            if shown.any():
                # NaN is the largest.
                at = np.unravel_index(np.argmax(np.where(shown, u, -np.inf)), u.shape)
                node = tuple(int(i) + p.start for i, p in zip(at, field.own, strict=True))
                mine[field.members.start + number] = float(u[at]), node
    gathered, best = field.gather(mine), []
    for number in range(field.problems):
        values = [part[number] for part in gathered if number in part]
        value, node = min(values, key=lambda e: (not math.isnan(e[0]), -e[0], e[1]))
        best.append(Extreme(sign * value, tuple(field.grid.at(node)[::-1].tolist())))
    return best


def points_along(line: Any, spacing: float, count: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return points ``(q, axes)`` along a polyline, and how far along it they are, ``(q,)``.

    ``count``: of points; by default about one per cell.

    `ValueError` if it is no line.
    """
    corners = real_array(line, "the line")
    if corners.ndim != 2 or len(corners) < 2:
        raise ValueError(
            f"a line has at least two points, rows (x, y), got the shape {corners.shape}"
        )
    lengths = np.linalg.norm(np.diff(corners, axis=0), axis=1)
    along = np.concatenate([[0.0], lengths.cumsum()])
    if not (lengths > 0).all():
        raise ValueError("a line goes from each of its points to another one")
    if count is None:
        count = math.ceil(along[-1] / spacing - 1e-9) + 1
    if count < 2:
        raise ValueError(f"a line has at least 2 points, got count={count}")
    at = np.linspace(0.0, along[-1], count)
    points = np.stack([np.interp(at, along, c) for c in corners.T], axis=1)
    return points, at


def _require_no_velocity(volumes: ControlVolumes, what: str) -> None:
    if not volumes.conserving:
        raise Unsupported(
            f"with a velocity there is not {what} that all volumes agree on, for b . grad u is not what flows: "
            "ask for flow() and balance(), which tell diffusion from what is carried"
        )


Ask = Callable[[FieldOnRank], Any]
"""A quantity of the fields that a process holds a part of; all processes together. Lists and arrays have an entry per problem."""


def slopes(u: np.ndarray, steps: Sequence[float]) -> list[np.ndarray]:
    """Return the derivative of fields ``(n, rows, columns)`` along each axis, of their shape.

    ``steps``: how far apart nodes are along each axis.

    Central differences where both neighbours have values; at the ends of the domain one-sided ones of three nodes,
    of two where there is no third; NaN where there is no neighbour at all, or no value.
    """
    return [
        _along(np.moveaxis(u, axis, -1), axis, step) for axis, step in enumerate(steps, start=1)
    ]


def _along(u: np.ndarray, axis: int, spacing: float) -> np.ndarray:
    wide = np.full((*u.shape[:-1], u.shape[-1] + 4), np.nan)
    wide[..., 2:-2] = u
    before2, before, after, after2 = (wide[..., k : k + u.shape[-1]] for k in (0, 1, 3, 4))
    choices = (
        (after - before) / 2,
        (-3 * u + 4 * after - after2) / 2,
        (3 * u - 4 * before + before2) / 2,
        after - u,
        u - before,
    )
    slope = choices[-1]
    for better in reversed(choices[:-1]):
        slope = np.where(np.isfinite(better), better, slope)
    slope = np.where(np.isfinite(u), slope, np.nan)
    return np.moveaxis(slope, -1, axis) / spacing


class Quantified:
    """Quantities of a solution; of several problems lists, or arrays with a leading axis.

    On several ranks all of them call these methods together, and have the same numbers; arrays are of the part that
    each has. Lengths are domain lengths. A flow is in units of ``a u`` (in space times a length).
    """

    def _asked(self, ask: Ask) -> Any:
        """Return a quantity of the fields; all ranks together."""
        raise NotImplementedError

    def at(self, points: Any) -> Any:
        """Return the values at points."""
        raise NotImplementedError

    @property
    def _spacing(self) -> float:
        """The least side of a cell."""
        raise NotImplementedError

    def _handed(self, array: np.ndarray) -> Any:
        """Return an array ``(n, ...)`` as the user has his own: of one problem without that axis."""
        return array[0] if len(array) == 1 else array

    def _number(self, values: Sequence[Any] | np.ndarray) -> Any:
        if isinstance(values, np.ndarray):
            return float(values[0]) if len(values) == 1 else values
        return values[0] if len(values) == 1 else list(values)

    def flux(self) -> tuple[Any, ...]:
        """Return the flux across each grid edge, per length (in space: area) of a whole face.

        That of the discretisation itself: what enters the control volume of a node less what leaves it, times the
        faces' lengths, the spacing, is what the volume consumes less what is made there, to the residual. So sums times
        the spacing are flows. Along sides and outlines, where a volume has a part of a face only, it is that part's flow.

        Returns
        -------
        tuple of arrays
            Per axis of the array, ``(ny, nx + 1)`` and ``(ny + 1, nx)``, from each node to the next; zero across
            edges that the domain has nothing of. On several ranks of the edges that begin at nodes of `local`.

        Raises
        ------
        Unsupported
            If the equation is not linear, has a velocity, a mixed derivative or time, describes waves, or the
            solution is of a window.
        """
        return tuple(self._handed(flux) for flux in self._asked(edge_fluxes))

    def gradient(self) -> tuple[Any, ...]:
        """Return the derivatives along the axes of the array, (y, x), at the nodes of `local`, ``u`` per length.

        Of second order; of first where an outline is so near that there are not three nodes. NaN outside.
        """
        return tuple(self._handed(slope) for slope in self._asked(derivatives))

    def flow(self, name: str, part: tuple[float, float] | None = None) -> Any:
        """Return the outflow through a side or an outline; negative if it flows in.

        It is the integral of ``-a du/dn``, ``n`` outward. Where a flux is given it is that; where a value is given,
        what is left over in the control volumes there, which is of second order on sides, of first on the outline
        of a shape. With a velocity it is that of diffusion.

        Parameters
        ----------
        name
            ``left``, ``right``, ``bottom``, ``top``, a part as ``left[0:0.5]``; ``outline``, ``outer``,
            ``hole1``, ..; what is held inside, by its name.
        part
            From one coordinate to another along a side; by default all of it.

        Raises
        ------
        ValueError
            If the domain has no such side.
        Unsupported
            As `flux`, but for the velocity.
        """
        return self._number(self._asked(partial(outflow, name=name, part=part)))

    def balance(self) -> Any:
        """Return the `Balance`: what flows out through each side and outline, what is made and consumed, and what is left over.

        Raises
        ------
        Unsupported
            As `flow`.
        """
        return self._number(self._asked(balances))

    def energy(self) -> Any:
        """Return half the integral of ``a |grad u|^2 + c u^2``, in units of ``a u^2`` (in space times a length).

        Raises
        ------
        Unsupported
            As `flux`.
        """
        return self._number(self._asked(energies))

    def integral(self, region: Region = None) -> Any:
        """Return the integral of the solution, ``u`` times an area (in space a volume), of second order in the spacing.

        Parameters
        ----------
        region
            A box, ``{"x": (x0, x1), "y": (y0, y1)}``, an axis that is not named whole; or a mask of cells or nodes;
            by default all of the domain.

        Raises
        ------
        ValueError
            If it is no region of the domain, or empty.
        """
        return self._number(self._asked(partial(integrals, region=region))[0])

    def mean(self, region: Region = None) -> Any:
        """Return the mean of the solution over a region, as `integral` has it."""
        return self._number(np.divide(*self._asked(partial(integrals, region=region))))

    def max(self) -> Any:
        """Return an `Extreme`: the largest value at a node, and the coordinates (x, y) of the first such node."""
        return self._number(self._asked(partial(extremes, sign=1.0)))

    def min(self) -> Any:
        """Return an `Extreme`: the smallest value at a node, and the coordinates (x, y) of the first such node."""
        return self._number(self._asked(partial(extremes, sign=-1.0)))

    def along(self, line: Any, count: int | None = None) -> tuple[np.ndarray, Any]:
        """Return the values along a line, as `at` has them.

        Parameters
        ----------
        line
            Its ends, or all corners, ``(k, 2)``, (x, y), in units of domain length.
        count
            Of points; by default about one per cell.

        Returns
        -------
        distances : ndarray
            Along the line, ``(q,)``.
        values : array
            ``(q,)``; of several problems ``(n, q)``.

        Raises
        ------
        ValueError
            If it is no line, or leaves the domain.
        """
        points, distances = points_along(line, self._spacing, count)
        return distances, self.at(points)
