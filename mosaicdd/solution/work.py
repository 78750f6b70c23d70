"""The problems at hand of a solver: checked, solved batch after batch, written, and reported."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mosaicdd.axes import Slices
from mosaicdd.grid.ghosts import FieldStart
from mosaicdd.parallel.launcher import Watch
from mosaicdd.parallel.machine import peak_memory
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.fingerprint import SOURCE, Fingerprint, changed, told_of_sides
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.sides import jumps_of, without_slope
from mosaicdd.report.progress import Progress
from mosaicdd.schwarz.interface import Interface
from mosaicdd.settings import argument, require_type
from mosaicdd.solution.beyond_float64 import beyond_numbers, explained
from mosaicdd.solution.checkpoints import Checkpoints
from mosaicdd.solution.kept import Batch, LocalResult
from mosaicdd.solution.output import SolutionOutput
from mosaicdd.solution.report import Result, merged_results, result_of, resumable
from mosaicdd.solution.setup import SolverPlan
from mosaicdd.solution.solution import Solution
from mosaicdd.solvers.base_engine import BaseEngine
from mosaicdd.solvers.outcome import Outcome
from mosaicdd.solvers.references.references import REFERENCES
from mosaicdd.solvers.settings import Output

WritePoints = Callable[[SolutionOutput, Outcome, "SolveJob"], None]


"""Writes the values at the points that were asked for."""


class SolveJob:
    """Problems that differ in their data only, and how a set-up solves them.

    All ranks make it and use it together.

    `ValueError` or `OSError` if the data are not sound: the same on all ranks, with the argument's name.

    Parameters
    ----------
    world
        All ranks, of all groups.
    setup
        What was planned; its sources become those of the problems.
    problem
        One or several, whose data are checked.

    Attributes
    ----------
    boundaries
        Values on the domain's edge, one of each problem.
    rounds
        Which of them are solved when, and by whom.
    """

    def __init__(self, world: Ranks, setup: SolverPlan, problem: Problem):
        self._world = world
        self._setup = setup
        self.problem = problem
        self.rounds = setup.rounds(problem.problems)
        with argument("boundary"):
            self.boundaries = world.run_on_all(lambda: problem.boundaries(setup.grid))
        setup.take(problem)
        self._sides = world.run_on_all(lambda: told_of_sides(problem, setup.grid))
        engine = world.run_on_all(lambda: self.first_engine)
        self._source = world.run_on_all(lambda: engine.check_source(problem))
        world.run_on_all(lambda: engine.check(self.boundaries))
        self._truth = self._reference(engine)

    def engine(self, problems: int) -> BaseEngine:
        """Return what solves so many problems at once."""
        return self._setup.engine(problems, self.rounds.batch)

    @property
    def first_engine(self) -> BaseEngine:
        """What solves this group's first batch."""
        return self.engine(len(self.rounds.members(0)))

    def _reference(self, engine: BaseEngine) -> Interface | None:
        """Return the true interface, if the iteration is to stop by its error."""
        setup = self._setup
        if setup.settings.until_mae is None:
            return None
        solve = REFERENCES[setup.settings.reference]

        def on_root() -> np.ndarray | None:
            return solve(self.problem, setup.grid) if setup.ranks.is_root else None

        with argument("reference"):
            return engine.reference(setup.ranks.run_on_all(on_root))

    def require_like(self, problem: Problem) -> None:
        """Check, by its values, that a problem can be solved by the same set-up; else all ranks raise `ValueError`."""

        def check() -> None:
            names = self._setup.changed(problem)
            if not names:
                return
            last = self.problem
            for_whom = f"this Solver was planned for {last.equation.name} on {last.domain}"
            if all(_given(problem, name) is _given(last, name) for name in names):
                raise ValueError(
                    f"{for_whom}, and the {' and the '.join(names)} changed since, in place or by what a "
                    "function refers to: make a new one"
                )
            names = [name + f", {problem.domain}" * (name == "domain") for name in names]
            raise ValueError(
                f"{for_whom}, the problem has another {' and another '.join(names)}: make a new one"
            )

        self._world.run_on_all(check)

    def require_unchanged(self) -> None:
        """Check that source and values on sides are what they were when taken; else all raise `ValueError`."""
        problem = self.problem

        def check() -> None:
            names = changed(self._sides, told_of_sides(problem, self._setup.grid))
            if self.first_engine.check_source(problem) != self._source:
                names = [SOURCE, *names]
            if names:
                raise ValueError(
                    f"the {' and the '.join(names)} of the problem changed since this Solver was planned or "
                    "last called: hand the new values over, as in solver(problem.with_fields(f=f))"
                )

        self._world.run_on_all(check)

    @property
    def told(self) -> Fingerprint:
        """What tells the data that are solved for from others."""
        return self._setup.told | self._sides | {SOURCE: self._source}

    def begin(self, start: Solution | FieldStart) -> LocalResult | FieldStart:
        """Return what a solve begins with.

        `TypeError` if a start is neither. `ValueError` unless it is one of as many problems, on the same grid and
        ranks.
        """
        if not isinstance(start, FieldStart):
            wanted = "a Solution that a Solver returned, whose interface is in memory"
            require_type("start", start, Solution, wanted)
        begin = start if isinstance(start, FieldStart) else start.kept
        if begin.problems != self.problem.problems:
            raise ValueError(
                f"start is a solution of {begin.problems} problems, there are "
                f"{self.problem.problems} now"
            )
        for number in range(self.rounds.number):
            members = self.rounds.members(number)
            begin.require_start(members, self.first_engine.partition, self.first_engine.halo)
        return begin

    def solve(
        self,
        start: LocalResult | FieldStart | None,
        checkpoints: Checkpoints | None,
        atol: float,
        progress: Progress | None,
        watch: Watch,
        file: SolutionOutput | None,
        write_points: WritePoints,
    ) -> tuple[list[Batch], list[Result], dict[str, float]]:
        """Solve and write batch after batch; return what is kept, all results, and the seconds.

        A signal to any rank ends the batch that its group works on; the other groups finish theirs,
        and no group begins another.

        Parameters
        ----------
        start
            Where the iteration starts, if not at zero.
        checkpoints
            Keep what there is of the problems; where an earlier run stopped, they go on, those that had ended as they were.
        atol
            The update that is small enough.
        """
        results: dict[int, Result] = {}
        rounds, kept = self.rounds, []
        if checkpoints is not None:
            checkpoints.begin()
        earlier = None if checkpoints is None else checkpoints.earlier
        if earlier is not None:
            rounds = rounds.without(earlier.results)
        if earlier is not None and earlier.results and file is not None:
            results |= earlier.results
            for ended in earlier.results:
                file.restore(ended, partial(earlier.rows, ended))
            if not rounds.number:
                file.inputs(self._own_nodes())
        spent = dict.fromkeys(("iterate", "estimate", "assemble"), 0.0)
        for number in range(rounds.number):
            if number and self._world.any(watch.interrupted):
                break
            members = rounds.members(number)
            outcomes: list[Outcome] = []
            if members:
                engine = self._prepared(members)
                begun: dict[str, Any] = {}
                if checkpoints is not None:
                    begun = checkpoints.start(members, engine)
                if start is not None and engine.begins:
                    fields = partial(self._periodic, start, members)
                    begun = {"start": engine.start_of(start, members, fields)}
                rule = self._setup.settings.stopping
                outcomes = engine.solve_many(
                    self.boundaries[members.start : members.stop],
                    **begun,
                    reference=self._truth,
                    progress=progress and rounds.progress(number, rule, progress),
                    watch=watch if checkpoints is None else checkpoints.watch(watch, members.start),
                    sink=file and partial(file.strips, members=members, place=engine.place),
                    atol=atol,
                )
                if any(map(beyond_numbers, outcomes)):
                    on_edges = self.boundaries[members.start : members.stop]
                    own = engine.owned
                    where = self._setup.ranks, self._setup.grid, own
                    outcomes = explained(outcomes, self.problem, on_edges, *where)
            if file is not None:
                self._write(file, number, outcomes, members, write_points)
            each = zip(members, outcomes, strict=True)
            now = {member: result_of(self._setup.ranks, outcome) for member, outcome in each}
            results |= now
            if checkpoints is not None and file is not None:
                checkpoints.ended(file, now)
            for name in spent:
                spent[name] += outcomes[0].seconds[name] if outcomes else 0.0
            if outcomes and (file is None or rounds.number == 1):
                kept.append(Batch(members, outcomes))
        gathered = self._gathered(results)
        if checkpoints is not None and file is not None and resumable(gathered):
            checkpoints.ended(file, {}, last=True)
        return kept, gathered, spent

    def _periodic(self, start: LocalResult | FieldStart, members: range) -> torch.Tensor | None:
        """Return what is periodic of fields to start from, which is solved for."""
        fields, own = start.start_fields(members), self.first_engine.owned
        if fields is None or not any(jumps_of(self.problem.conditions)):
            return fields
        grid = self._setup.grid
        return torch.from_numpy(
            without_slope(self.problem.conditions, grid, own, fields.cpu().numpy())
        )

    def _prepared(self, members: range) -> BaseEngine:
        """Return the engine of a batch, with the sources of its problems."""
        engine = self.engine(len(members))
        source = self._setup.bound.source
        if source is not None and len(members) < self.problem.problems:
            source.update(self.problem.some(members))
        return engine

    def _write(
        self,
        file: SolutionOutput,
        number: int,
        outcomes: Sequence[Outcome],
        members: range,
        write_points: WritePoints,
    ) -> None:
        """Write what belongs to a round besides the fields of this group, which are written by now."""
        if not members and self._setup.fill:
            file.fields((), (slice(0, 0), slice(0, 0)))
        if not self._setup.fill:
            file.lines(self.engine(1).movement, outcomes[0].interface)
        if outcomes:
            write_points(file, outcomes[0], self)
        file.maps(outcomes, members)
        if number == 0:
            file.inputs(self._own_nodes())

    def _own_nodes(self) -> Slices:
        """Return the nodes of the domain that this rank speaks for, none in groups but the first."""
        if self._setup.groups.index:
            return slice(0, 0), slice(0, 0)
        return self.first_engine.owned

    def _gathered(self, results: dict[int, Result]) -> list[Result]:
        """Return the results of all groups, those of problems that were not begun among them."""
        parts = self._world.allgather(results if self._setup.ranks.is_root else {})
        known = {member: result for part in parts for member, result in part.items()}
        return [known.get(member, Result()) for member in range(self.problem.problems)]

    def kept(self, batches: list[Batch], given_ranks: Any, output: Output | None) -> LocalResult:
        """Return what is kept of a solve that writes an output, by ranks as they were given."""
        engine, setup = self.first_engine, self._setup
        return LocalResult(
            given_ranks,
            setup.settings,
            setup.partition.boxes,
            setup.ranks.cuts,
            engine.samples,
            setup.window,
            engine.filling if batches and engine.filling.between_nodes else None,
            engine.owned,
            self.boundaries,
            self.told,
            batches,
            Path(output.path) if output is not None and setup.fill else None,
        )

    def report(self, results: Sequence[Result]) -> dict:
        """Return what is said of all problems, but the seconds."""
        engine = self.first_engine
        return (
            merged_results(results)
            | self._setup.described()
            | {
                "batch": self.rounds.batch,
                "peak_memory_bytes": peak_memory(self._world),
                "pde": self.problem.equation.name,
                "parameters": self.problem.described,
                "domain": self._domain(),
                "unknowns": engine.unknowns,
                "accelerate": engine.acceleration,
                "layout": str(engine.layout),
            }
        )

    def _domain(self) -> str | None:
        """Say what part of the rectangle the domain is; None for all. All ranks together."""
        shape, grid = self.problem.domain.shape, self._setup.grid
        if shape is None:
            return None
        own = self._own_nodes()
        inside = self.first_engine.inside_shape(own)
        if inside is None:
            inside = int((shape.level(grid, own) < 0).sum())
        count = int(self._world.sum(np.array([float(inside)]))[0])
        order = "staircase, first order" if shape.staircase else "second order"
        return f"{shape}: {count} of {math.prod(grid.nodes)} nodes inside; {order} at the outline"


def _given(problem: Problem, name: str) -> object:
    """Return what a problem was given under a name of what is planned."""
    kind, _, field = name.partition(" ")
    if kind == "field":
        return problem.fields.get(field)
    return problem.domain.shape if kind == "shape" else problem.sides
