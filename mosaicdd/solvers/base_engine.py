"""The base of engines: a grid over ranks, options, outcomes and fields; and a stopwatch by parts of the work."""

import abc
import dataclasses
import json
import pkgutil
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from mosaicdd.axes import Slices
from mosaicdd.discretisation.given_conditions import Points
from mosaicdd.discretisation.system import Method
from mosaicdd.grid.partition import Partition, SampleNodes
from mosaicdd.grid.window import Strip, Window, in_window
from mosaicdd.parallel.launcher import Watch
from mosaicdd.parallel.machine import one_thread_after_fork, prepare_memory
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.fingerprint import fingerprint_of_source
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.outcome import (
    ERROR_STEP,
    ErrorEstimate,
    History,
    Outcome,
    Progress,
    StatusEvidence,
    verdict,
)
from mosaicdd.solvers.settings import CONVERGED, SolveSettings, StoppingRule
from mosaicdd.storage.atomic import MARK, atomic_file

Event = tuple[str, str, float, float]
"""One run of a part: its name and lane, begin and end in seconds of this machine's clock."""


class Stopwatch:
    """Adds up seconds by part.

    ``traced``: whether to keep begin and end of every part, for `events`.
    """

    def __init__(self, *, traced: bool = False):
        self.started = time.perf_counter()
        self._parts: dict[str, Part] = {}
        self.events: list[Event] | None = [] if traced else None

    def part(self, name: str, lane: str = "work") -> "Part":
        """Return the clock of a part, as ``with stopwatch.part(name):``.

        Parts of one lane do not nest: ``"work"`` of this rank, and ``"messages"`` on their way.
        """
        if name not in self._parts:
            self._parts[name] = Part(name, lane, self.events)
        return self._parts[name]

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of work spent in each part so far."""
        return {part.name: part.seconds for part in self._parts.values() if part.lane == "work"}


class Part:
    """One part of the work; entered again and again, it allocates nothing."""

    def __init__(self, name: str, lane: str, events: list[Event] | None):
        self.name = name
        self.lane = lane
        self.seconds = 0.0
        self._events = events
        self._began: float | None = None

    def begin(self) -> None:
        """Start the clock."""
        self._began = time.perf_counter()

    def end(self) -> None:
        """Stop the clock, if it runs."""
        if self._began is None:
            return
        end = time.perf_counter()
        self.seconds += end - self._began
        if self._events is not None:
            self._events.append((self.name, self.lane, self._began, end))
        self._began = None

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *failure: object) -> None:
        self.end()


def write_trace(path: str, ranks: Ranks, clock: Stopwatch) -> None:
    """Let the root write the events of all ranks: one process per rank, work and messages apart."""
    gathered = ranks.gather(clock.events) or []
    ranks.on_root(lambda: _write_trace(path, gathered))


def _write_trace(path: str, gathered: list[list[Event]]) -> None:
    start = min(begin for events in gathered for _, _, begin, _ in events)
    lanes = {"work": 0, "messages": 1}
    entries = [
        {"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}}
        for rank in range(len(gathered))
    ]
    entries += [
        {"name": "thread_name", "ph": "M", "pid": rank, "tid": tid, "args": {"name": lane}}
        for rank in range(len(gathered))
        for lane, tid in lanes.items()
    ]
    entries += [
        {
            "name": name,
            "ph": "X",
            "pid": rank,
            "tid": lanes[lane],
            "ts": 1e6 * (begin - start),
            "dur": 1e6 * (end - begin),
        }
        for rank, events in enumerate(gathered)
        for name, lane, begin, end in events
    ]
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps({"otherData": {"by": MARK}, "traceEvents": entries}))


_VANISHING = 1e-292  # root mean square of values that have lost digits
S = TypeVar("S", bound=Method)
_ENGINES = {
    "shared": "schwarz.engine:Engine",
    "multigrid": "solvers.linear_engine:LinearEngine",
    "sines": "solvers.linear_engine:LinearEngine",
    "newton": "solvers.newton.newton_engine:NewtonEngine",
}


def engine_of(method: str) -> type["BaseEngine"]:
    """Return the engine of a method's name (`Method.method`); `ValueError` if there is none.

    It is imported where it is chosen: most solves start sooner without the others.
    """
    if method not in _ENGINES:
        raise ValueError(f"no engine runs local solvers by the method {method!r}")
    engine: type[BaseEngine] = pkgutil.resolve_name(f"mosaicdd.{_ENGINES[method]}")
    return engine


Sink = Callable[[Iterator[Strip]], None]
"""Takes the strips of the field one after another, all of them, on every rank."""


@dataclass(frozen=True)
class SolveOptions:
    """Options of a solve.

    Parameters
    ----------
    start
        Where the iterations begin, by default at zero: an interface, which is overwritten, or of a method on the whole
        grid fields, ``(n, rows, columns)`` at the nodes of this rank.
    histories, statuses
        Of each problem, where an earlier run stopped. With histories, a problem that has none begins as if there were
        no start; one that has a status had ended.
    reference
        The true interface values, for a stopping rule with ``mae``.
    progress
        ``progress(iteration, update, size, mae)``, called after every iteration.
    watch
        What may interrupt the iteration, and keeps checkpoints of it.
    sink
        Takes the field, if it is wanted, strip by strip, so that no rank ever holds its part of
        it; by default it is kept.
    atol
        The update that is small enough this time, instead of that of the settings.
    """

    start: Any = None
    histories: Sequence[History] = ()
    statuses: Sequence[str | None] = ()
    reference: Any = None
    progress: Progress | None = None
    watch: Watch | None = None
    sink: Sink | None = None
    atol: float | None = None

    def history(self, number: int) -> History:
        """Return a copy of a problem's history so far."""
        return (self.histories[number] if self.histories else History()).followed_by(History())

    def begun(self, number: int) -> Any:
        """Return the start, if it is one of a problem."""
        return None if self.histories and not self.histories[number].update else self.start


@dataclass(frozen=True)
class FieldRequest:
    """The fields that an engine is planned for.

    Parameters
    ----------
    problems
        Problems that are solved at once.
    fill
        Whether the field is wanted, not the interface only.
    window
        Part of the field to fill; all of it by default.
    beyond
        Whether fields show the unknowns beyond natural outlines of a shape, too.
    """

    problems: int = 1
    fill: bool = True
    window: Window | None = None
    beyond: bool = False

    @property
    def whole(self) -> bool:
        """Whether the whole field is wanted."""
        return self.fill and self.window is None


class BaseEngine(abc.ABC, Generic[S]):
    """Solver of boundary value problems on one grid, planned once.

    Every rank constructs its own engine with the same arguments.

    Parameters
    ----------
    partition
        Of the grid over the ranks.
    request
        How many problems are solved at once, and what of their fields is wanted; by default one, and all of it.
    clock
        Adds up where the time goes.

    Attributes
    ----------
    acceleration
        What drives the iteration.
    owned, place, layout
        This rank's part of the field, what of it is wanted, and how the whole field lies over the ranks.
    """

    acceleration: str
    begins = True  # whether it matters where a solve begins
    halo: int | None = None  # lattice cells around a block; None without a lattice of subdomains
    interpolant: Method | None = None  # the local solver, if it has values between the nodes

    def __init__(
        self,
        partition: Partition,
        local_solver: S,
        settings: SolveSettings,
        request: FieldRequest | None = None,
        clock: Stopwatch | None = None,
    ):
        prepare_memory()
        one_thread_after_fork()
        self.request = request = request or FieldRequest()
        self.partition, self.grid, self.owned = partition, partition.grid, partition.owned
        self.settings, self.problems = settings, request.problems
        self.clock = clock or Stopwatch()
        self.layout = partition.layout
        self.place = (request.window or Window.whole(self.grid)).clip(self.owned)
        self._ranks = partition.ranks
        self._tensors = settings.tensors
        self._solver = local_solver
        self._prepare(local_solver)

    @abc.abstractmethod
    def _prepare(self, local_solver: S) -> None:
        """Plan the method for a system."""

    @property
    @abc.abstractmethod
    def unknowns(self) -> int:
        """Unknowns of the whole domain."""

    @property
    def samples(self) -> SampleNodes:
        """The nodes at which errors are estimated one by one."""
        return SampleNodes.of_grid(self.grid, self.partition.periodic, ERROR_STEP[len(self.owned)])

    def start_of(
        self, start: Any, members: range, fields: Callable[[], torch.Tensor | None]
    ) -> Any:
        """Return the initial guess of some problems.

        Parameters
        ----------
        start
            A solution that is kept, or a `FieldStart`.
        fields
            Returns this rank's part of its fields, ``(n, rows, columns)``, or None.
        """
        return fields()

    def check_source(self, problem: Problem) -> Hashable:
        """Return the fingerprint of the source at the nodes of this rank; raise `ValueError` if it is not sound."""
        return fingerprint_of_source(problem, self.grid, self.owned)

    def check(self, boundaries: Sequence[Boundary]) -> None:
        """Check boundary data by the equation; raise `ValueError` if no solve can begin from these."""

    def change(
        self, values: np.ndarray, force: np.ndarray, rtol: float, *, transposed: bool
    ) -> tuple[np.ndarray, str] | None:
        """Solve the equations linearised at values for a force; return the change and the status.

        All at the nodes that this rank owns; None, on all ranks, of a method that has no equations of all nodes.
        ``force``: times the squared spacing; of a periodic axis its first node's counts.
        ``rtol``: bound of the residual, relative to the force. ``transposed``: the product with the transposed one.
        """
        return None

    def solve(self, boundary: Boundary, **options: Any) -> Outcome:
        """Solve for boundary data; options as those of `solve_many`."""
        (solution,) = self.solve_many([boundary], **options)
        return solution

    def solve_many(self, boundaries: Sequence[Boundary], **options: Any) -> list[Outcome]:
        """Solve for the boundary data of each problem; see `SolveOptions`.

        `ValueError` if this engine was planned for another number of problems.
        """
        if len(boundaries) != self.problems:
            raise ValueError(f"planned for {self.problems} problems at once, got {len(boundaries)}")
        return self._solve_many(boundaries, SolveOptions(**options))

    def _rule(self, options: SolveOptions) -> StoppingRule:
        """Return when an iteration of a solve stops."""
        rule = self.settings.stopping
        return rule if options.atol is None else dataclasses.replace(rule, atol=options.atol)

    def _residual_rule(self, options: SolveOptions) -> StoppingRule:
        """Return the rule of an iteration whose residual is bounded by ``rtol``, as by a certificate."""
        rule, certify = self._rule(options), self.settings.certify
        rtol = rule.rtol if certify is None else min(rule.rtol, certify)
        return StoppingRule(rtol, rule.atol, rule.max_iterations)

    @abc.abstractmethod
    def _solve_many(self, boundaries: Sequence[Boundary], options: SolveOptions) -> list[Outcome]:
        """Solve for the boundary data of each problem."""

    def _outcome(
        self,
        status: str,
        evidence: StatusEvidence,
        estimate: ErrorEstimate,
        values: np.ndarray | torch.Tensor,
        history: History,
        power: float = 1.0,
        failure: str | None = None,
        **more: Any,
    ) -> Outcome:
        """Return the outcome of a problem, with the status that the evidence leaves.

        Parameters
        ----------
        values
            Of this rank, as they are handed out.
        power
            What the data were multiplied by, of which evidence, estimate and history are.
        failure
            Why the method found no way on, if it did not.
        more
            What else an `Outcome` is made of.
        """
        final = verdict(status, evidence)
        size = float(evidence.size) / power
        small = final == "converged_rtol" and size < _VANISHING
        if small and self._ranks.any(bool(values.any()) or power != 1.0):
            final = "converged_atol"
        if power != 1.0 and self._ranks.any(not torch.as_tensor(values).isfinite().all()):
            final = "diverged_nan"
        history = history.times(1 / power)
        measured = final in ("converged_rounding", "stagnated") and evidence.residual is not None
        return Outcome(
            status=final,
            update=history.update[-1],
            history=history,
            size=size,
            discrete_residual=evidence.residual,
            rounding=(evidence.rounding or None) if measured else None,
            error_estimate=estimate.times(1 / power),
            place=self.place,
            layout=self.layout,
            failure=None if final in CONVERGED else failure,
            **more,
        )

    def inside_shape(self, nodes: Slices) -> int | None:
        """Count the nodes of a part that are inside a shape or on its outline.

        None where that is not known without its level.
        """
        return None

    def outline_points(self) -> Points | None:
        """Return the points of conditions on outlines, of this rank's nodes.

        The same on all ranks: known or not.
        """
        return None

    def _new_fields(self) -> torch.Tensor:
        """Return room for this rank's part of the field that is wanted, ``(n, rows, columns)``."""
        shape = self.problems, *(part.stop - part.start for part in self.place)
        fields = torch.empty(0, **self._tensors)
        if fields.is_cpu:  # numpy asks for large pages, which are there sooner
            return torch.from_numpy(np.empty(shape, fields.numpy().dtype))
        return fields.new_empty(shape)

    def _delivered(self, strips: Iterator[Strip], sink: Sink | None) -> torch.Tensor | None:
        """Hand the strips of the field, or what a window has of it, to a sink; without one return it, if it is wanted."""
        if not self.request.fill:
            return None
        if self.request.window is not None:
            strips = in_window(strips, self.request.window)
        if sink is None:
            return self._kept(strips)
        sink(strips)
        return None

    def _is_wanted(self, fields: np.ndarray, sink: Sink | None) -> bool:
        """Say whether fields are all that is wanted, as they are and where they are."""
        kind = torch.empty(0, **self._tensors)
        as_it_is = kind.is_cpu and kind.numpy().dtype == fields.dtype
        return self.request.whole and as_it_is and sink is None

    def _kept(self, strips: Iterator[Strip]) -> torch.Tensor:
        """Return this rank's part of the field that is wanted."""
        fields = self._new_fields()
        first = self.place[0].start
        for strip in strips:
            rows = strip.place[0]
            fields[:, rows.start - first : rows.stop - first] = strip.owned
        return fields
