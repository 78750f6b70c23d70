"""Balances of inflow, sources, reaction and outflow, and energies.

Where the outline of a shape is natural, nodes beyond it whose volumes have a part in the domain are unknowns, too, which a field does not show.
Their own equations, with the values inside, say what they are: one small sparse system along all outlines.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from mosaicdd.axes import common, crossed, ends, ends_of, grown, sizes, within
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.discretisation.periodic import grid_cells, places_of
from mosaicdd.problems.fields.fields import Part, Periods
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.shapes.apertures import Apertures
from mosaicdd.problems.sides.conditions import Dirichlet
from mosaicdd.problems.sides.parts import SidePart
from mosaicdd.problems.sides.sides import mean_slope
from mosaicdd.quantities.control_volumes import ControlVolumes
from mosaicdd.quantities.side_flows import SideFlows
from mosaicdd.quantities.sums import FieldOnRank, rows_of

_FLOW = "flow_"  # begins the names of flows among those of a step's numbers
_NOTHING = 1e-7  # of the flows if all values fell to zero over the domain: no solve shows less


@dataclass(frozen=True)
class Balance:
    """The balance of one problem, in units of ``a u`` times domain length to the power of the axes less two.

    Of a march what flowed, was made and consumed in all of its steps: the same times a time.

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
    stored
        What the domain has more of at the end of a march than at its begin.
    least
        Less than this, in all, is nothing: it cannot be told from rounding and what solves leave.
    """

    flows: dict[str, float]
    sources: float
    reaction: float
    carried: float
    stored: float = 0.0
    least: float = 0.0

    @property
    def inflow(self) -> float:
        """The inflow through sides and outlines where more flows in than out."""
        return -sum(flow for flow in self.flows.values() if flow < 0)

    @property
    def outflow(self) -> float:
        """The outflow through the other sides and outlines."""
        return sum(flow for flow in self.flows.values() if flow > 0)

    @property
    def left_over(self) -> float:
        """Inflow and sources less reaction, storage and outflow: zero of an exact solution."""
        taken = self.reaction + self.carried + self.stored
        return self.sources - taken - sum(self.flows.values())

    @property
    def relative(self) -> float:
        """The remainder `left_over`, relative to all terms of the balance; 0 where these are nothing."""
        parts = (self.sources, self.reaction, self.carried, self.stored, *self.flows.values())
        size = sum(map(abs, parts)) / 2
        return abs(self.left_over) / size if size > self.least else 0.0

    def numbers(self) -> dict[str, float]:
        """Return its parts by names, as the record of a march has them: those of flows begin with ``flow_``."""
        flows = {_FLOW + name: flow for name, flow in self.flows.items()}
        return flows | {name: value for name, value in vars(self).items() if name != "flows"}

    def described(self) -> dict:
        """Return the balance as plain values by name."""
        more = {
            name: getattr(self, name) for name in ("inflow", "outflow", "left_over", "relative")
        }
        return asdict(self) | more


def balance_until(end: float | None, record: Mapping[str, Any]) -> Balance | None:
    """Return the balance of a march up to a time; None where a step's is not known.

    ``record``: by name, a number for each step: its ``time`` and length, ``step``, and `Balance.numbers`.
    """
    last = np.inf if end is None else end
    steps = np.asarray(record["step"])[np.asarray(record["time"]) <= last]
    names = [name for name in record if name.startswith(_FLOW)]
    others = [field.name for field in fields(Balance) if field.name != "flows"]
    if not {*others} <= {*record}:
        return None
    total = {name: float(np.dot(record[name][: len(steps)], steps)) for name in (*names, *others)}
    if not np.isfinite([*total.values()]).all():
        return None
    flows = {name.removeprefix(_FLOW): total.pop(name) for name in names}
    return Balance(flows, **total)


def balance_of(names: Sequence[str], row: np.ndarray) -> Balance:
    """Return the balance of sums, as `flows_out` has them, over all processes."""
    flows = dict(zip(names, map(float, row), strict=False))
    sources, reaction, carried, stored, gross = map(float, row[len(names) :])
    return Balance(flows, sources, reaction, carried, stored, _NOTHING * gross)


def flows_out(
    volumes: ControlVolumes, field: FieldOnRank, *, loads: bool = True
) -> tuple[list[str], np.ndarray]:
    """Return the names of sides and outlines, and sums of this process, ``(n, names + 5)``.

    What flows out through each; sources, reaction, if ``loads``, and what is carried; zero; and what would flow if all
    values fell to zero.
    """
    sides = SideFlows(volumes, field)
    names = [*sides.names, *volumes.outlines]
    sums = np.zeros((len(field.values), len(names) + 5))
    for at, name in enumerate(sides.names):
        sums[:, at] = sides.total(SidePart(name, Dirichlet()))
    sums[:, -1] = sides.gross
    if volumes.outline is not None or not volumes.conserving or volumes.nonlinear is not None:
        _add_whole(volumes, field, sums, len(sides.names), loads=loads)
    elif loads:
        _add_loads(volumes, field, sums)
    sums[:, -1] /= max(volumes.grid.shape)
    return names, sums


def outline_flows(volumes: ControlVolumes, field: FieldOnRank) -> np.ndarray:
    """Return the outflow through each outline of each problem, ``(n, outlines)``; all processes together."""
    sums = np.zeros((len(field.values), len(volumes.outlines) + 5))
    _add_whole(volumes, field, sums, 0, loads=False)
    return volumes.scale * field.total(sums)[:, :-5]


def _add_whole(
    volumes: ControlVolumes, field: FieldOnRank, sums: np.ndarray, first: int, *, loads: bool
) -> None:
    """Add up what outlines and a velocity do in all volumes; if ``loads``, sources and reaction, too."""
    for part in rows_of(field):
        wide = field.around(part)
        part_volumes = volumes.on(wide)
        inner = (slice(None), *within(part, wide))
        u = np.where(part_volumes.present, field.at(wide), 0.0)

        def total(values: np.ndarray, inner: tuple = inner) -> np.ndarray:
            return values[inner].reshape(len(values), -1).sum(axis=1)

        nodes, outlines, through, weights = volumes.through_outlines(part_volumes, u)
        owned = np.zeros(part_volumes.present.shape, bool)
        owned[within(part, wide)] = True
        counts = owned.reshape(-1)[nodes]
        for row, out in zip(sums, through, strict=True):
            last = first + len(volumes.outlines)
            row[first:last] += np.bincount(outlines, out * counts, len(volumes.outlines))
        sums[:, -1] += abs(u.reshape(len(u), -1)[:, nodes]) @ (counts * weights)
        if loads:
            source = volumes.loads(part_volumes, wide)
            sums[:, -5] += total(source) if isinstance(source, np.ndarray) else source
            sums[:, -4] += total(part_volumes.consumed(u))
        if not volumes.conserving:
            sums[:, -3] += total(sum(part_volumes.to_neighbours(u), np.zeros(u.shape)))


def _add_loads(volumes: ControlVolumes, field: FieldOnRank, sums: np.ndarray) -> None:
    """Add up sources and reaction on a rectangle, where nothing need be known of conductances."""
    grid, problem = volumes.grid, volumes.problem
    source, reaction = problem.source, volumes.medium.reaction
    if source is None and volumes.medium.pure:
        return
    for part in rows_of(field):
        cover = Apertures.of_cells(grid_cells(part, grid.shape))
        weights = grid.spacing**2 * cover.volumes
        if source is not None:
            sums[:, -5] += (source.sample(grid, part) * weights).reshape(-1, weights.size).sum(1)
        if not volumes.medium.pure:
            consumed = field.at(part) * reaction.sample(grid, part)
            sums[:, -4] += (consumed * weights).reshape(-1, weights.size).sum(1)


def dirichlet_energies(volumes: ControlVolumes, field: FieldOnRank) -> np.ndarray:
    """Return half the integral of ``a |grad u|^2 + c u^2`` of each problem, ``(n,)``; all processes together."""
    sums = np.zeros(len(field.values))
    for part in rows_of(field):
        wide = field.around(part)
        part_volumes, u = volumes.on(wide), field.at(wide)
        u = np.where(part_volumes.present, u, 0.0)
        inner = within(part, wide)
        for step, k, _ in part_volumes.between.edges():
            # Each edge half at both of its nodes, so that every process counts its own.
            first, last = ends_of(step)
            energy = k * np.square(u[:, *last] - u[:, *first])
            at_nodes = np.zeros(u.shape)
            at_nodes[:, *first] += energy / 2
            at_nodes[:, *last] += energy / 2
            sums += at_nodes[:, *inner].reshape(len(u), -1).sum(axis=1)
        stored = part_volumes.between.reaction * np.square(u)
        sums += stored[:, *inner].reshape(len(u), -1).sum(axis=1)
        sums += volumes.in_ties(part_volumes, u, inner)
    return volumes.scale * field.total(sums) / 2


def with_unknowns_beyond(volumes: ControlVolumes, field: FieldOnRank) -> FieldOnRank:
    """Return a field with its unknowns beyond natural outlines; all processes together."""
    if volumes.outline is None or not volumes.outline.natural:
        return field
    problem, grid = volumes.problem, field.grid
    discretisation = Discretisation(problem, volumes.medium, grid)
    outline = discretisation.values(problem)
    slope = mean_slope(problem.conditions, grid, field.wide)
    values = field.values.copy() if slope is None else field.values - slope
    periods = problem.conditions.periods(grid)
    if not discretisation.floating:
        at, place = places_of(outline.known, field.wide, periods)
        held: tuple[Any, ...] = (slice(None), *place)
        missing = np.isnan(values[held])
        values[held] = np.where(missing, outline.values[:, at], values[held])
    # Equations of what this process speaks for, once each along periodic axes, with what is around.
    owned = tuple(
        slice(p.start, p.stop if period is None else min(p.stop, period))
        for p, period in zip(field.own, periods, strict=True)
    )
    ring = grown(owned)
    equations = discretisation.equations(ring)
    right = discretisation.right_hand_side(problem, outline, ring, equations)
    u = _around(field, values, ring)
    hidden = equations.active & np.isnan(u).any(axis=0)
    rows = np.zeros(hidden.shape, bool)
    inner = within(owned, ring)
    rows[inner] = hidden[inner]
    ids = _global_ids(ring, grid.nodes, periods)
    row, column, value, inflow = _rows(
        equations.conductances, rows, hidden, ids, np.where(equations.active, u, 0.0)
    )
    entries = row, column, value, ids[rows], right[:, rows] + inflow
    parts = field.gather((field.members.start, entries))
    solved_ids, solved = _solution([e for first, e in parts if first == field.members.start])
    if len(solved_ids):
        wide_ids = _global_ids(field.wide, grid.nodes, periods)
        which = np.searchsorted(solved_ids, wide_ids).clip(max=len(solved_ids) - 1)
        lacking = (solved_ids[which] == wide_ids) & np.isnan(values)
        values[lacking] = solved[:, which][lacking]
    return dataclasses.replace(field, values=values if slope is None else values + slope)


def _around(field: FieldOnRank, values: np.ndarray, ring: Part) -> np.ndarray:
    """Return wide values at the nodes of a part that may reach beyond the grid; NaN where there are none."""
    u = np.full((len(values), *sizes(ring)), np.nan)
    shared = common(ring, field.wide)
    where = within(shared, ring)
    u[:, *where] = values[:, *within(shared, field.wide)]
    return u


def _global_ids(part: Part, nodes: tuple[int, ...], periods: Periods) -> np.ndarray:
    """Return a number of each node of a part, the same of copies; of what is beyond the grid, a negative one."""
    along = []
    for p, count, period in zip(part, nodes, periods, strict=True):
        at = np.arange(p.start, p.stop)
        along.append(at % period if period is not None else np.where(at < count, at, -1))
    inside = functools.reduce(np.logical_and, crossed(*(at >= 0 for at in along)))
    ids = np.ravel_multi_index(crossed(*(at.clip(min=0) for at in along)), nodes)
    return np.where(inside, ids, -1)


def _rows(
    conductances: Conductances, rows: np.ndarray, hidden: np.ndarray, ids: np.ndarray, u: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the entries of the equations of some nodes: rows, columns, values, and what known neighbours add."""
    diagonal = conductances.diagonal()
    entries = [(ids[rows], ids[rows], diagonal[rows])]
    values_shown = np.where(hidden, 0.0, np.nan_to_num(u))
    right = np.zeros(u.shape)
    edges = zip(conductances.along, conductances.against, strict=True)
    for axis, (forth, back) in enumerate(edges):
        low, high = ends(axis, rows.ndim)
        for nodes, neighbours, k in ((low, high, forth), (high, low, back)):
            both = rows[nodes] & hidden[neighbours] & (k > 0)
            entries.append((ids[nodes][both], ids[neighbours][both], -k[both]))
            right[:, *nodes] += np.where(rows[nodes], k, 0.0) * values_shown[:, *neighbours]
    row, column, value = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    return row, column, value, right[:, rows]


def _solution(parts: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """Solve the equations of all processes; return the nodes' numbers, ascending, and values ``(n, K)``."""
    row, column, value, node = (np.concatenate([p[k] for p in parts]) for k in range(4))
    right = np.concatenate([p[4] for p in parts], axis=1)
    ids, first = np.unique(node, return_index=True)
    if not len(ids):
        return ids, right
    at = np.searchsorted(ids, row), np.searchsorted(ids, column).clip(max=len(ids) - 1)
    matrix = scipy.sparse.coo_array((value, at), shape=(len(ids),) * 2).tocsc()
    return ids, scipy.sparse.linalg.splu(matrix).solve(right[:, first].T).T
