"""What a solve gives: fields, how good they are, and what can be done with them."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.points import as_points, on_grid
from mosaicdd.lattice.window import Window
from mosaicdd.local_solvers.bound import BoundSolver
from mosaicdd.local_solvers.condensed_solver import CondensedSolver
from mosaicdd.local_solvers.network_solver import NetworkSolver
from mosaicdd.parallel.collect import Part
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.replicas import Replicas
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.problem import Problem
from mosaicdd.report.presented import Presented
from mosaicdd.schwarz.layouts import InterfaceMovement
from mosaicdd.schwarz.outcome import Outcome
from mosaicdd.schwarz.output import SolutionOutput
from mosaicdd.schwarz.point_values import PointValues
from mosaicdd.schwarz.report import Result
from mosaicdd.schwarz.settings import CONVERGED, SolveSettings
from mosaicdd.schwarz.stopping import History
from mosaicdd.schwarz.stopwatch import Stopwatch
from mosaicdd.storage.atomic import require_writable
from mosaicdd.storage.shards import require_shard_folder
from mosaicdd.storage.solution_file import StoredSolution, read_solution
from mosaicdd.tensors import Tensors

_LEFT_OUT = "the field was left out by fields='interface'; solve with fields='solution'"


@dataclass(frozen=True)
class Kept:
    """What a solution keeps of its solver: what it takes to evaluate and to write it.

    Parameters
    ----------
    ranks
        What the solver was given as ``ranks``: its own communicator is freed with it.
    local_solver
        By which the field was filled.
    own
        This rank's nodes in the whole domain; none in the groups beside the first.
    """

    ranks: Any
    settings: SolveSettings
    lattice: Lattice
    window: Window
    local_solver: BoundSolver | CondensedSolver
    own: Slices


@dataclass(frozen=True)
class Batch:
    """Problems of this rank's group that were solved at once, and how they ended."""

    members: range
    outcomes: list[Outcome]

    @property
    def problems(self) -> slice:
        """Which of all problems they are."""
        return slice(self.members.start, self.members.stop)

    @property
    def interface(self) -> Interface:
        """The values on this rank's lattice lines, of all of them."""
        return self.outcomes[0].interface


class Solution(Presented):
    """The solutions of one or several problems; every rank has its own part.

    Arrays are numpy's, or torch's if the problem's were; of several problems they have a leading axis.
    What reads `field`, and `at`, `save`, `compare`, `plot` and `to_xarray` do, is called by all ranks
    together where there are several.

    Attributes
    ----------
    problem
        What was solved.
    report
        All that ``solve --json`` prints, by name; of several problems the worst of each number.
    results
        How each problem ended.
    checkpoint
        From which an interrupted solve can go on, if there is one.
    """

    def __init__(
        self,
        problem: Problem,
        kept: Kept,
        batches: Sequence[Batch],
        report: dict,
        results: Sequence[Result],
        boundaries: Sequence[Boundary],
        *,
        path: str | PathLike | None = None,
        checkpoint: Path | None = None,
    ):
        self.problem = problem
        self.report = report
        self.checkpoint = checkpoint
        self.results = list(results)
        self._kept = kept
        self._batches = list(batches)
        self._boundaries = list(boundaries)
        self._path = None if path is None else Path(path)
        self._whole: dict[str, np.ndarray | None] = {}
        self._like = _tensor_of(problem)

    # How it went

    @property
    def status(self) -> str:
        """How it ended; of several problems the worst.

        One of ``converged_rtol``, ``converged_atol``, ``stagnated``, ``diverged_max_iterations``,
        ``diverged_tolerance``, ``diverged_nan``, ``interrupted``.
        """
        return self.report["status"]

    @property
    def converged(self) -> bool:
        """Whether all problems met the stopping rule."""
        return self.status in CONVERGED

    @property
    def iterations(self) -> int:
        """Iterations done, of the problem that took most."""
        return self.report["iterations"]

    @property
    def error_estimate(self) -> float:
        """Estimated root mean square distance to the discrete solution; the largest of several."""
        return self.report["error_estimate"]

    @property
    def history(self) -> History | list[History]:
        """Numbers per iteration; of several problems a list."""
        histories = [result.history for result in self.results]
        return histories[0] if len(histories) == 1 else histories

    @property
    def seconds(self) -> dict[str, float]:
        """Where the time of this rank has gone, by part, ``total`` among them."""
        return self.report["seconds"]

    @property
    def problems(self) -> int:
        """The number of problems."""
        return len(self.results)

    # Fields

    @property
    def x(self) -> np.ndarray:
        """Where the columns of the field lie, ``(nx + 1,)``, in units of domain length."""
        return self._coordinates(1)

    @property
    def y(self) -> np.ndarray:
        """Where the rows of the field lie, ``(ny + 1,)``, in units of domain length."""
        return self._coordinates(0)

    def _coordinates(self, axis: int) -> np.ndarray:
        window = self._kept.window
        return np.arange(window.start[axis], window.stop[axis]) * self._kept.lattice.grid.spacing

    @property
    def field(self) -> Any:
        """The whole field ``(ny + 1, nx + 1)``, or the window that was asked for, on every rank.

        Several ranks gather it at the first use, and each holds it from then on; `local` does not.
        """
        return self._given(self._field)

    @property
    def _field(self) -> np.ndarray:
        """The whole fields, ``(n, rows, columns)``."""
        fields = self._gathered("field")
        if fields is None:
            raise RuntimeError(_LEFT_OUT)
        return fields

    @property
    def local(self) -> Any:
        """The part of the field that this rank has; `place` says where it belongs in that."""
        if self._path is not None:
            stored = [read_solution(self._path, i).field for i in range(self.problems)]
            return self._given(np.stack(stored)[self._places])
        fields = self._local_fields()
        return self._given(np.concatenate(fields) if len(fields) != 1 else fields[0])

    @property
    def place(self) -> tuple[slice, ...]:
        """Where `local` belongs in `field`: a slice per axis."""
        return self._places if self.problems > 1 else self._places[1:]

    @property
    def _places(self) -> tuple[slice, ...]:
        members = [batch.members for batch in self._batches]
        mine = slice(members[0].start, members[-1].stop) if members else slice(0, 0)
        place = self._kept.window.clip(self._kept.own)
        return mine, *self._kept.window.within(place)

    def _local_fields(self) -> list[np.ndarray]:
        """Return this rank's part of the fields of each batch, ``(n, rows, columns)``."""
        return [_stacked([_field_of(one) for one in batch.outcomes]) for batch in self._batches]

    def _given(self, array: np.ndarray) -> Any:
        """Return an array ``(n, ...)`` as the user has his own: of one problem without that axis."""
        array = array[0] if self.problems == 1 else array
        like = self._like
        return array if like is None else torch.from_numpy(array).to(like.device)

    def _gathered(self, name: str) -> np.ndarray | None:
        """Return a quantity of the whole domain and of all problems, on every rank."""
        if name not in self._whole:
            self._whole[name] = self._gather(name)
        return self._whole[name]

    def _gather(self, name: str) -> np.ndarray | None:
        if self._path is not None:
            stored = [getattr(read_solution(self._path, i), name) for i in range(self.problems)]
            return None if stored[0] is None else np.stack(stored)
        with Ranks.of(self._kept.ranks) as ranks:
            parts = self._parts(name)
            if ranks.any(parts is None) or parts is None:
                return None
            nodes = tuple(n + 1 for n in self._kept.lattice.cells)
            shape = (self.problems, *(self._kept.window.shape if name == "field" else nodes))
            if ranks.size == 1 and len(parts) == 1 and parts[0][0].shape == shape:
                return parts[0][0]
            whole = np.zeros(shape, self._kept.settings.dtype)
            for array, place in parts:
                whole[place] = array
            return ranks.sum(whole)

    def _parts(self, name: str) -> list[Part] | None:
        """Return this rank's parts of a quantity and where they belong; None if it has none."""
        if name == "field":
            return self._field_parts()
        parts: list[Part] = []
        for batch in self._batches:
            maps = [_map_of(name, outcome) for outcome in batch.outcomes]
            known = [one for one in maps if one is not None]
            if len(known) < len(maps):
                return None
            place = batch.outcomes[0].error_estimate.place
            parts.append((_stacked(known), (batch.problems, *place)))
        return parts

    def _field_parts(self) -> list[Part]:
        """Return this rank's parts of the fields, and where they belong."""
        place = self._places[1:]
        return [
            (fields, (batch.problems, *place))
            for fields, batch in zip(self._local_fields(), self._batches, strict=True)
        ]

    def at(self, points: Any) -> Any:
        """Return the values at points anywhere in the domain.

        By the network where one solved an equation without a source; else interpolated bilinearly from
        the nodes, which is as good as the discretisation: of second order in the spacing.

        Parameters
        ----------
        points
            ``(q, 2)``, (x, y) in units of domain length.

        Returns
        -------
        array
            ``(q,)``; of several problems ``(n, q)``.

        Raises
        ------
        ValueError
            If they are not points, or one lies outside of the domain, or of the window.
        """
        cells = on_grid(as_points(points), self._kept.lattice.grid)
        solver, settings = self._kept.local_solver, self._kept.settings
        if not (isinstance(solver, NetworkSolver) and solver.source is None and self._batches):
            values = _interpolated(self._field, cells - np.array(self._kept.window.start))
        else:
            with Ranks.of(self._kept.ranks) as ranks:
                values = self._by_network(ranks, solver, cells, settings)
        return self._given(values if self.problems > 1 else values[:1])

    def _by_network(
        self, ranks: Ranks, solver: NetworkSolver, cells: np.ndarray, settings: SolveSettings
    ) -> np.ndarray:
        """Evaluate the network at points ``(q, 2)``, (y, x) in cells: ``(n, q)``."""
        groups = Replicas(ranks, settings.replicas, settings.dims)
        group = groups.ranks.fitted(self._kept.lattice.subdomains)
        movement = InterfaceMovement(group, self._kept.lattice, settings.halo_depth)
        evaluate = PointValues(group, solver, movement, cells, **settings.tensors)
        values = np.zeros((self.problems, len(cells)))
        for batch in self._batches:
            found = evaluate(batch.interface, self._boundaries[batch.problems])
            if group.is_root:
                values[batch.problems] = found
        return ranks.sum(values)

    # Beyond this process

    def save(self, path: str | PathLike, *, shards: bool = False) -> None:
        """Write a solution file, as ``mosaicdd solve`` does; all ranks together.

        Parameters
        ----------
        shards
            Whether every rank writes its part of the field of one problem to a file of its own.

        Raises
        ------
        OSError
            If it cannot be written, on all ranks; a file that was there before stays.
        RuntimeError
            If the solver wrote the solution to a file already and kept nothing.
        TypeError, ValueError
            If several problems are to be written in shards or without their fields, or shards of a
            field that was left out.
        """
        if self._path is not None:
            raise RuntimeError(f"the solution was written to {self._path} and is kept there only")
        kept, settings = self._kept, self._kept.settings
        self._require_one_to_write(shards=shards)
        with Ranks.of(kept.ranks) as ranks:
            ranks.on_root(lambda: require_writable(path))
            if shards:
                ranks.on_root(lambda: require_shard_folder(path))
            groups = Replicas(ranks, settings.replicas, settings.dims)
            group = groups.ranks.fitted(kept.lattice.subdomains)
            with SolutionOutput(
                str(path),
                ranks,
                kept.lattice,
                self.problem,
                self._boundaries,
                settings.dtype,
                kept.window,
                Stopwatch(),
                shards=shards,
            ) as file:
                self._write(file, ranks, group)
                file.source(kept.own if groups.index == 0 else (slice(0, 0), slice(0, 0)))
                file.describe(self.report, self.results)

    def _require_one_to_write(self, *, shards: bool) -> None:
        """Check that nothing is asked for that a file holds of one problem only, or of a field."""
        lines = self.report["fields"] == "interface"
        if shards and lines:
            raise TypeError(f"shards=True: {_LEFT_OUT}")
        for name, is_given in {"shards=True": shards, "fields='interface'": lines}.items():
            if is_given and self.problems > 1:
                raise ValueError(
                    f"{name} takes one problem, there are {self.problems}: solve them one by one"
                )

    def _write(self, file: SolutionOutput, ranks: Ranks, group: Ranks) -> None:
        """Write fields, or the interface, and maps."""
        kept = self._kept
        if self.report["fields"] == "interface":
            movement = InterfaceMovement(group, kept.lattice, kept.settings.halo_depth)
            file.lines(movement, self._batches[0].interface)
        else:
            place = kept.window.clip(kept.own)
            parts = [(values, (m, *place)) for values, (m, *_) in self._field_parts()]
            file.fields(parts, place)
        batches = self._batches
        for number in range(int(ranks.largest(len(batches)))):
            batch = batches[number] if number < len(batches) else Batch(range(0), [])
            file.maps(batch.outcomes, batch.members)

    def each(self) -> list[StoredSolution]:
        """Return the solution of each problem as a file would hold it; the arrays are in memory."""
        return [self._stored(number) for number in range(self.problems)]

    def _stored(self, number: int) -> StoredSolution:
        if self._path is not None:
            return read_solution(self._path, number)
        solution = self._without_arrays(number)
        maps = {name: self._gathered(name) for name in ("error_map", "outside")}
        vars(solution).update(
            field=self._field[number],
            fields=self._fields_of(number),
            **{name: None if v is None else v[number] for name, v in maps.items()},
        )
        return solution

    def _without_arrays(self, number: int) -> StoredSolution:
        own = self.results[number]
        history = {name: np.array(v) for name, v in dataclasses.asdict(own.history).items()}
        return StoredSolution(
            path=Path("memory"),
            version=(),
            grid=self._kept.lattice.grid,
            boundary=self._boundaries[number],
            window=self._kept.window,
            history=history,
            attributes={k: v for k, v in self.report.items() if k != "problems"} | own.report,
            number=number,
            problems=self.problems,
        )

    def _first(self) -> StoredSolution:
        return self._without_arrays(0)

    def _picture(self) -> str:
        return super()._picture() if self.report["fields"] == "solution" else ""

    def _fields_of(self, number: int) -> dict[str, float | np.ndarray]:
        """Return the parameters and the source of a problem."""
        fields: dict[str, float | np.ndarray] = {**self.problem.parameters}
        source, grid = self.problem.source, self._kept.lattice.grid
        if source is not None and source.number is not None:
            fields["f"] = source.number
        for name, field in self.problem.arrays.items():
            values = field.sample_as_given(grid, Window.whole(grid).place)
            fields[name] = values[number % len(values)]
        return fields

    def require_start(self, members: range, block: Block) -> None:
        """Check that another solve of some problems can begin with this solution.

        Parameters
        ----------
        block
            Of this rank, in the other solve.

        Raises
        ------
        ValueError
            If it is of another grid, lies otherwise over the ranks, or is not kept.
        """
        lattice, other = self._kept.lattice, block.lattice
        if lattice.grid != other.grid:
            (ny, nx), (rows, columns) = lattice.grid.shape, other.grid.shape
            raise ValueError(
                f"start has {nx}x{ny} cells with a spacing of {lattice.grid.spacing:g}, the problem "
                f"{columns}x{rows} with {other.grid.spacing:g}; they must be equal"
            )
        if lattice != other:
            raise ValueError(
                f"start was solved with subdomains of {lattice.subdomain.cells} cells, this Solver "
                f"has those of {other.subdomain.cells}; use the same local solver"
            )
        if set(members) - set(self._rows):
            raise ValueError(
                "start does not keep all problems on the ranks that need them: it was written to a "
                "file, interrupted, or solved with other replicas"
            )
        if self._batches and self._batches[0].interface.block != block:
            raise ValueError(
                "start lies otherwise over the ranks; use the same ranks, dims and halo_depth"
            )

    def start(self, members: range, **tensors: Unpack[Tensors]) -> Interface:
        """Return a copy of the interface of some problems, for another solve to begin with."""
        rows, like = self._rows, self._batches[0].interface
        flat = torch.cat([rows[member] for member in members]).to(**tensors)
        return Interface(like.block, problems=len(members), flat=flat, **tensors)

    @property
    def _rows(self) -> dict[int, torch.Tensor]:
        """The values on this rank's lattice lines, of each problem."""
        return {
            member: row
            for batch in self._batches
            for member, row in zip(
                batch.members, batch.interface.flat.chunk(len(batch.members)), strict=True
            )
        }

    def __repr__(self) -> str:
        nx, ny = self.report["grid"]
        several = f"{self.problems} problems, " if self.problems > 1 else ""
        return (
            f"<Solution of {self.report['pde']} on {nx}x{ny} cells by "
            f"{self.report['local_solver']}: {several}{self.status} after {self.iterations} "
            f"iterations, error estimate {self.error_estimate:.1e}>"
        )


def _tensor_of(problem: Problem) -> torch.Tensor | None:
    """Return one of the problem's own tensors, if it has any."""
    sides = problem.sides.values() if isinstance(problem.sides, Mapping) else [problem.sides]
    given = [*problem.fields.values(), *(getattr(side, "values", None) for side in sides)]
    return next((values for values in given if isinstance(values, torch.Tensor)), None)


def _field_of(outcome: Outcome) -> torch.Tensor:
    if outcome.field is None:
        raise RuntimeError(_LEFT_OUT)
    return outcome.field


def _map_of(name: str, outcome: Outcome) -> torch.Tensor | None:
    """Return what is known per lattice node, ``error_map`` or ``outside``."""
    return outcome.error_estimate.nodes if name == "error_map" else outcome.outside


def _stacked(values: list[torch.Tensor]) -> np.ndarray:
    """Return values of some problems with a leading axis; of one without a copy."""
    stacked = values[0][None] if len(values) == 1 else torch.stack(values)
    return stacked.cpu().numpy()


def _interpolated(field: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Interpolate fields ``(n, rows, columns)`` bilinearly at ``(q, 2)``, (y, x): ``(n, q)``.

    Raises
    ------
    ValueError
        If a point lies beside the field, in a window of the domain.
    """
    last = np.array(field.shape[1:]) - 1
    if ((cells < 0) | (cells > last)).any():
        raise ValueError("a point lies outside of the window that the field is known in")
    low = np.minimum(cells.astype(int), np.maximum(last - 1, 0))
    high = np.minimum(low + 1, last)
    t = cells - low
    (y0, x0), (y1, x1), (ty, tx) = low.T, high.T, t.T
    below = (1 - tx) * field[:, y0, x0] + tx * field[:, y0, x1]
    above = (1 - tx) * field[:, y1, x0] + tx * field[:, y1, x1]
    return (1 - ty) * below + ty * above
