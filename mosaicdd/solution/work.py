"""The problems at hand of a solver: checked, solved batch after batch, written, and reported.

Groups of ranks work side by side, in rounds. In each, a group solves a batch of its share of the problems, and all ranks of
all groups hand what they have to the root, which writes the one file. Five problems in two groups, two at a time:

```
   round    0        1
   group 0  0, 1     2
   group 1  3, 4     -
```

A group that has no problems left takes part with nothing. One problem is one round of one batch.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mosaicdd.grid.ghosts import FieldStart
from mosaicdd.parallel.launcher import Watch
from mosaicdd.parallel.machine import peak_memory
from mosaicdd.problems.fingerprint import SOURCE, changed, fingerprint_of_sides
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.sides import jumps_of, without_slope
from mosaicdd.report.progress import Progress
from mosaicdd.schwarz.interface import Interface
from mosaicdd.settings import argument, require_type
from mosaicdd.solution.kept import LocalResult
from mosaicdd.solution.output import SolveFiles
from mosaicdd.solution.report import Result, merged_results, result_of
from mosaicdd.solution.setup import SolverPlan
from mosaicdd.solution.solution import Solution
from mosaicdd.solvers.base_engine import BaseEngine
from mosaicdd.solvers.outcome import Outcome
from mosaicdd.solvers.references import REFERENCES
from mosaicdd.solvers.settings import StoppingRule

_LARGEST = 1e140  # whose squares, as of equations that are not linear, are numbers


class SolveJob:
    """Problems that differ in their data only, and how a set-up solves them.

    All ranks make it and use it together.

    `ValueError` or `OSError` if the data are not sound: the same on all ranks, with the argument's name.

    Parameters
    ----------
    setup
        What was planned; its sources become those of the problems.
    problem
        One or several, whose data are checked.

    Attributes
    ----------
    part
        What this rank has of their solution, before any of them is solved.
    """

    def __init__(self, setup: SolverPlan, problem: Problem, given_ranks: Any):
        self._world = world = setup.world
        self._setup, self._given_ranks = setup, given_ranks
        self.problem = problem
        self._batch = setup.batch(problem.problems)
        with argument("boundary"):
            boundaries = world.run_on_all(lambda: problem.boundaries(setup.grid))
        setup.take(problem)
        self._sides = world.run_on_all(lambda: fingerprint_of_sides(problem, setup.grid))
        engine = world.run_on_all(lambda: self.first_engine)
        self._source = world.run_on_all(lambda: engine.check_source(problem))
        world.run_on_all(lambda: engine.check(boundaries))
        self._truth = self._reference(engine)
        self.part = LocalResult(
            grid=setup.grid,
            window=setup.window,
            own=engine.owned,
            dtype=setup.settings.dtype,
            given_ranks=given_ranks,
            settings=setup.settings,
            boxes=setup.partition.boxes,
            cuts=setup.ranks.cuts,
            samples=engine.samples,
            network=engine.interpolant,
            boundaries=boundaries,
            told=setup.told | self._sides | {SOURCE: self._source},
        )

    def another(self, problem: Problem) -> "SolveJob":
        """Return the job of other problems on the same set-up."""
        return SolveJob(self._setup, problem, self._given_ranks)

    @property
    def first_engine(self) -> BaseEngine:
        """The engine of this group's first batch."""
        share = self._setup.groups.share(self.problem.problems)
        return self._setup.engine(min(self._batch, len(share)), self._batch)

    def _rounds(self, ended: Collection[int]) -> list[range]:
        """Return this group's problems of each round, maybe none, without those that have ended.

        Problems of a batch follow each other, and there are as many rounds in all groups.
        """
        groups, most, mine = self._setup.groups, 0, list[range]()
        for group in range(groups.count):
            batches: list[range] = []
            for problem in groups.share(self.problem.problems, group):
                last = batches[-1] if batches else range(0)
                if problem in ended:
                    continue
                if len(last) in (0, self._batch) or last.stop != problem:
                    batches.append(range(problem, problem + 1))
                else:
                    batches[-1] = range(last.start, problem + 1)
            most = max(most, len(batches))
            mine = batches if group == groups.index else mine
        return mine + [range(0)] * (most - len(mine))

    def _reference(self, engine: Any) -> Interface | None:
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
            names = changed(self._sides, fingerprint_of_sides(problem, self._setup.grid))
            if self.first_engine.check_source(problem) != self._source:
                names = [SOURCE, *names]
            if names:
                raise ValueError(
                    f"the {' and the '.join(names)} of the problem changed since this Solver was planned or "
                    "last called: hand the new values over, as in solver(problem.with_fields(f=f))"
                )

        self._world.run_on_all(check)

    def begin(self, start: Solution | FieldStart) -> LocalResult | FieldStart:
        """Return the start of a solve, checked.

        `TypeError` if a start is neither. `ValueError` unless it is one of as many problems, on the same grid and
        ranks.
        """
        wanted = "a Solution that a Solver returned, whose interface is in memory"
        require_type("start", start, Solution | FieldStart, wanted)
        begin = start.kept if isinstance(start, Solution) else start
        if begin.problems != self.problem.problems:
            raise ValueError(
                f"start is a solution of {begin.problems} problems, there are "
                f"{self.problem.problems} now"
            )
        share, engine = self._setup.groups.share(self.problem.problems), self.first_engine
        begin.require_start(share, engine.partition, engine.halo)
        return begin

    def solve(
        self,
        start: LocalResult | FieldStart | None,
        atol: float,
        progress: Progress | None,
        watch: Watch,
        files: SolveFiles | None,
    ) -> tuple[LocalResult, list[Result], dict[str, float]]:
        """Solve and write batch after batch; return what this rank keeps, all results, and the seconds.

        A signal to any rank ends the batch that its group works on; the other groups finish theirs,
        and no group begins another.

        Parameters
        ----------
        start
            Where the iteration starts, if not at zero.
        atol
            The update that is small enough.
        files
            Take the fields, and keep checkpoints; where an earlier run stopped the problems go on, those that had ended as
            they were.
        """
        setup, results, kept = self._setup, dict[int, Result](), list[Outcome]()
        first = 0
        if files is not None:
            results |= files.restored()
        rounds = self._rounds(results)
        spent = dict.fromkeys(("iterate", "estimate", "assemble"), 0.0)
        for number, members in enumerate(rounds):
            if number and self._world.any(watch.interrupted):
                break
            outcomes: list[Outcome] = []
            if members:
                engine = self._prepared(members)
                how = {"watch": watch} if files is None else files.options(members, engine, watch)
                if start is not None and engine.begins:
                    fields = partial(self._periodic, start, members)
                    how = {"start": engine.start_of(start, members, fields)} | how
                rule = setup.settings.stopping
                outcomes = engine.solve_many(
                    self.part.boundaries[members.start : members.stop],
                    **how,
                    reference=self._truth,
                    progress=progress and _progress(number, len(rounds), rule, progress),
                    atol=atol,
                )
                if any(map(_is_no_number, outcomes)):
                    outcomes = self._explained(outcomes, members)
            each = zip(members, outcomes, strict=True)
            now = {member: result_of(setup.ranks, outcome) for member, outcome in each}
            results |= now
            if files is not None:
                files.write(outcomes, members, now)
            for name in spent:
                spent[name] += outcomes[0].seconds[name] if outcomes else 0.0
            if outcomes and (files is None or len(rounds) == 1):
                first = first if kept else members.start
                kept += outcomes
        gathered = self._gathered(results)
        path = None
        if files is not None:
            files.end(gathered)
        if setup.output is not None and setup.fill:
            path = Path(setup.output.path)
        part = dataclasses.replace(self.part, outcomes=kept, first=first, path=path)
        return part, gathered, spent

    def _periodic(self, start: LocalResult | FieldStart, members: range) -> torch.Tensor | None:
        """Return the periodic part of fields to start from, the unknown of the solve."""
        fields, own = start.start_fields(members), self.first_engine.owned
        if fields is None or not any(jumps_of(self.problem.conditions)):
            return fields
        grid = self._setup.grid
        return torch.from_numpy(
            without_slope(self.problem.conditions, grid, own, fields.cpu().numpy())
        )

    def _prepared(self, members: range) -> BaseEngine:
        """Return the engine of a batch, with the sources of its problems."""
        engine = self._setup.engine(len(members), self._batch)
        source = self._setup.bound.source
        if source is not None and len(members) < self.problem.problems:
            source.update(self.problem.some(members))
        return engine

    def _gathered(self, results: dict[int, Result]) -> list[Result]:
        """Return the results of all groups, those of problems that were not begun among them."""
        parts = self._world.allgather(results if self._setup.ranks.is_root else {})
        known = {member: result for part in parts for member, result in part.items()}
        return [known.get(member, Result()) for member in range(self.problem.problems)]

    def _explained(self, outcomes: list[Outcome], members: range) -> list[Outcome]:
        """Say of solves that ended without a number if what was given is beyond float64; all ranks of a group together."""
        problem, grid, own = self.problem, self._setup.grid, self.first_engine.owned
        values: list[Any] = [
            part.values for part in problem.conditions.parts if not callable(part.values)
        ]
        for boundary in self.part.boundaries[members.start : members.stop]:
            values.extend(boundary.edges.values())
        if problem.source is not None:  # which may be none outside of the domain
            values.append(problem.source.sample_as_given(grid, own, checked=False))
        sizes = [np.abs(v) for v in values if isinstance(v, (int, float, np.ndarray))]
        mine = [float(np.fmax.reduce(size, axis=None, initial=0.0)) for size in sizes]
        largest = max(self._setup.ranks.allgather(max(mine)))
        if largest < _LARGEST:
            return outcomes
        why = (
            f"values of up to {largest:.0e} are given, and what is made of them is beyond float64: divide sources, "
            "fluxes and values on sides by one number"
        )
        return [
            dataclasses.replace(outcome, failure=why)
            if _is_no_number(outcome) and outcome.failure is None
            else outcome
            for outcome in outcomes
        ]

    def report(self, results: Sequence[Result]) -> dict:
        """Return the report of all problems, without the seconds."""
        setup, engine, settings = self._setup, self.first_engine, self._setup.settings
        extent, grid = setup.extent, setup.grid
        return merged_results(results) | {
            "subdomains": setup.bound.subdomains(grid),
            "grid": list(grid.shape[::-1]),
            "ranks": setup.world.size,
            "dims": list(setup.ranks.dims[::-1]),
            "replicas": setup.groups.count,
            "local_solver": setup.bound.name,
            "model": setup.model,
            "levels": settings.levels,
            "sweep": settings.sweep,
            "rtol": settings.rtol,
            "certify": settings.certify,
            "device": settings.device.partition(":")[0],
            "dtype": settings.dtype,
            "keep": "field" if setup.fill else "interface",
            "window": extent and [list(ends) for ends in extent.extent(grid)[::-1]],
            "batch": self._batch,
            "peak_memory_bytes": peak_memory(self._world),
            "pde": self.problem.equation.name,
            "parameters": self.problem.described,
            "domain": self._domain(),
            "unknowns": engine.unknowns,
            "accelerate": engine.acceleration,
            "layout": str(engine.layout),
        }

    def _domain(self) -> str | None:
        """Describe the part of the rectangle that the domain is; None for all. All ranks together."""
        shape, grid = self.problem.domain.shape, self._setup.grid
        if shape is None:
            return None
        own = self._setup.spoken_for
        inside = self.first_engine.inside_shape(own)
        if inside is None:
            inside = int((shape.level(grid, own) < 0).sum())
        count = int(self._world.sum(np.array([float(inside)]))[0])
        order = "staircase, first order" if shape.staircase else "second order"
        return f"{shape}: {count} of {math.prod(grid.nodes)} nodes inside; {order} at the outline"


def _given(problem: Problem, name: str) -> object:
    """Return the datum of a problem by its name in a plan."""
    kind, _, field = name.partition(" ")
    if kind == "field":
        return problem.fields.get(field)
    return problem.domain.shape if kind == "shape" else problem.sides


def _is_no_number(outcome: Outcome) -> bool:
    """Say whether a solve ended without a number."""
    residual = outcome.discrete_residual
    return outcome.status == "diverged_nan" or not math.isfinite(residual or 0.0)


def _progress(number: int, count: int, rule: StoppingRule, show: Progress) -> Callable[..., None]:
    """Return a function that shows measurements of a round as progress of all, on a logarithmic scale."""
    where = f"batch {number + 1} of {count}, " if count > 1 else ""
    first = 0.0

    def shown(iteration: int, update: float, size: float, mae: float) -> None:
        nonlocal first
        relative = update / size if size > 0 else update
        note = f"{where}iteration {iteration}, relative update {relative:.1e}"
        now, aim = update, max(rule.rtol * size, rule.atol)
        if rule.mae is not None:
            note += f", MAE {mae:.1e}"
            now, aim = mae, rule.mae
        if 0 < aim < now < math.inf:
            first = max(first, now)
            fraction = 1 - math.log(now / aim) / math.log(first / aim)
            show((number + fraction) / count, note)

    return shown
