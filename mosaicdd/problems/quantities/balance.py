"""What flows into a domain, what is made and consumed there, and what flows out."""

from dataclasses import asdict, dataclass

import numpy as np

from mosaicdd.lattice.axes import ends, within
from mosaicdd.problems.discretisation.periodic import GridNodes
from mosaicdd.problems.quantities.control_volumes import ControlVolumes
from mosaicdd.problems.quantities.held_field import HeldField, rows_of
from mosaicdd.problems.quantities.side_flows import SideFlows
from mosaicdd.problems.shapes.apertures import Cover
from mosaicdd.problems.sides.conditions import Dirichlet
from mosaicdd.problems.sides.parts import SidePart


@dataclass(frozen=True)
class Balance:
    """Of one problem, in units of ``a u`` times domain length to the power of the axes less two.

    Parameters
    ----------
    flows
        What flows out through each side and outline, by its name; negative where it flows in.
    sources
        What the source gives.
    reaction
        What ``c u`` consumes.
    carried
        What a velocity carries away, the integral of ``b . grad u``.
    """

    flows: dict[str, float]
    sources: float
    reaction: float
    carried: float

    @property
    def inflow(self) -> float:
        """What flows in through the sides and outlines where that is more than flows out."""
        return -sum(flow for flow in self.flows.values() if flow < 0)

    @property
    def outflow(self) -> float:
        """What flows out through the others."""
        return sum(flow for flow in self.flows.values() if flow > 0)

    @property
    def left_over(self) -> float:
        """What comes in and is made, less what is consumed and goes out: zero of an exact solution."""
        return self.sources - self.reaction - self.carried - sum(self.flows.values())

    @property
    def relative(self) -> float:
        """What is left over, relative to all that is made, consumed and flows."""
        parts = (self.sources, self.reaction, self.carried, *self.flows.values())
        size = sum(map(abs, parts)) / 2
        return abs(self.left_over) / size if size else 0.0

    def described(self) -> dict:
        """Return it as plain values by name."""
        more = {
            name: getattr(self, name) for name in ("inflow", "outflow", "left_over", "relative")
        }
        return asdict(self) | more


def balances(volumes: ControlVolumes, field: HeldField) -> list[Balance]:
    """Return the balance of each problem; all processes together."""
    sides = SideFlows(volumes, field)
    names = [*sides.names, *volumes.outlines]
    n = len(field.values)
    sums = np.zeros((n, len(names) + 3))
    for at, name in enumerate(sides.names):
        sums[:, at] = sides.total(SidePart(name, Dirichlet()))
    add = _whole if volumes.outline is not None or not volumes.medium.self_adjoint else _loads
    add(volumes, field, sums, len(sides.names))
    return [
        Balance(dict(zip(names, map(float, row), strict=False)), *map(float, row[-3:]))
        for row in volumes.scale * field.total(sums)
    ]


def outline_flows(volumes: ControlVolumes, field: HeldField) -> np.ndarray:
    """Return what flows out through each outline of each problem, ``(n, outlines)``; all processes together."""
    sums = np.zeros((len(field.values), len(volumes.outlines) + 3))
    _whole(volumes, field, sums, 0)
    return volumes.scale * field.total(sums)[:, :-3]


def _whole(volumes: ControlVolumes, field: HeldField, sums: np.ndarray, first: int) -> None:
    """Add up what outlines, sources, reaction and a velocity do in all volumes."""
    for part in rows_of(field):
        wide = field.around(part)
        here = volumes.on(wide)
        inner = (slice(None), *within(part, wide))
        u = np.where(here.present, field.at(wide), 0.0)

        def total(values: np.ndarray, inner: tuple = inner) -> np.ndarray:
            return values[inner].reshape(len(values), -1).sum(axis=1)

        nodes, outlines, through = volumes.through_outlines(here, u)
        own = np.zeros(here.present.shape, bool)
        own[within(part, wide)] = True
        counts = own.reshape(-1)[nodes]
        for row, out in zip(sums, through, strict=True):
            last = first + len(volumes.outlines)
            row[first:last] += np.bincount(outlines, out * counts, len(volumes.outlines))
        loads = volumes.loads(here, wide)
        if isinstance(loads, np.ndarray):
            sums[:, -3] += total(loads)
        sums[:, -2] += total(here.between.reaction * u)
        if not here.between.symmetric:
            sums[:, -1] += total(sum(here.to_neighbours(u), np.zeros(u.shape)))


def _loads(volumes: ControlVolumes, field: HeldField, sums: np.ndarray, first: int) -> None:
    """Add up sources and reaction on a rectangle, where nothing need be known of conductances."""
    grid, problem = volumes.grid, volumes.problem
    source, reaction = problem.source, volumes.medium.reaction
    if source is None and volumes.medium.pure:
        return
    for part in rows_of(field):
        cover = Cover.of_cells(GridNodes(grid.shape, (None,) * len(part)).cells(part))
        weights = grid.spacing**2 * cover.volumes
        if source is not None:
            sums[:, -3] += (source.sample(grid, part) * weights).reshape(-1, weights.size).sum(1)
        if not volumes.medium.pure:
            consumed = field.at(part) * reaction.sample(grid, part)
            sums[:, -2] += (consumed * weights).reshape(-1, weights.size).sum(1)


def energies(volumes: ControlVolumes, field: HeldField) -> np.ndarray:
    """Return half the integral of ``a |grad u|^2 + c u^2`` of each problem, ``(n,)``; all processes together."""
    sums = np.zeros(len(field.values))
    for part in rows_of(field):
        wide = field.around(part)
        here, u = volumes.on(wide), field.at(wide)
        u = np.where(here.present, u, 0.0)
        inner = within(part, wide)
        for axis, k in enumerate(here.between.along):
            low, high = ends(axis, len(part))
            # Each edge half at both of its nodes, so that every process counts its own.
            energy = k * np.square(u[:, *high] - u[:, *low])
            at_nodes = np.zeros(u.shape)
            at_nodes[:, *low] += energy / 2
            at_nodes[:, *high] += energy / 2
            sums += at_nodes[:, *inner].reshape(len(u), -1).sum(axis=1)
        stored = here.between.reaction * np.square(u)
        sums += stored[:, *inner].reshape(len(u), -1).sum(axis=1)
        sums += volumes.in_ties(here, u, inner)
    return volumes.scale * field.total(sums) / 2
