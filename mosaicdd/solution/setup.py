"""The plan of a solver for all of its problems: method, partition, ranks and engines."""

import dataclasses
import math
from os import PathLike
from typing import Any, TypedDict

import numpy as np

from mosaicdd.axes import Slices, coordinates, times
from mosaicdd.discretisation.system import Method, system_of
from mosaicdd.grid.partition import NodeBoxes, Partition
from mosaicdd.grid.window import Extent, Window
from mosaicdd.parallel.machine import device_of_rank, require_memory
from mosaicdd.parallel.ranks import Ranks, Replicas
from mosaicdd.problems.fingerprint import (
    Fingerprint,
    changed,
    fingerprint_of_kind,
    plan_fingerprint,
)
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.shape import Level, Shape
from mosaicdd.schwarz.local_solvers.bound import LocalSolver
from mosaicdd.settings import argument
from mosaicdd.solvers.base_engine import BaseEngine, FieldRequest, Stopwatch, engine_of
from mosaicdd.solvers.settings import Output, SolveSettings
from mosaicdd.unsupported import Unsupported


class Wanted(TypedDict, total=False):
    """The part of a solution that is wanted, and its file, as `Solver` has them."""

    window: Extent | None
    keep: str
    points: Any
    output: str | PathLike | Output | None


class SolverPlan:
    """The method, partition, ranks and engines of a problem and all others that differ from it in their data only.

    All ranks make it together; parameters are those of `Solver`.

    `ValueError`, `TypeError` or `OSError` if these do not fit each other: the same on all ranks, with the argument's
    name.

    Attributes
    ----------
    grid, partition
        Of the domain; of its nodes over the ranks of this group.
    window, extent
        The nodes that are wanted of the field; the same if only a part is, else None.
    fill, output
        Whether the field is wanted, not the interface only; the file that it goes to, if one is asked for.
    groups, ranks
        All ranks in groups that work side by side, and those of this rank's own.
    bound
        The local solver, bound to the problem.
    told
        What tells what was planned for from other coefficients and domains.
    """

    def __init__(
        self,
        problem: Problem,
        local_solver: str | PathLike | LocalSolver | None,
        world: Ranks,
        settings: SolveSettings,
        wanted: Wanted,
        clock: Stopwatch,
    ):
        keep, output = wanted.get("keep", "field"), wanted.get("output")
        if keep not in ("field", "unknowns", "interface"):
            raise ValueError(f"keep={keep!r} is unknown; known: field, unknowns, interface")
        self.fill, self._beyond = keep != "interface", keep == "unknowns"
        self.output = None if output is None else Output.of(output)
        self.world, self.clock = world, clock
        if settings.device == "cuda":
            settings = settings.with_changes(device=str(device_of_rank(world, "cuda")))
        self.settings = settings
        self._engines: dict[int, BaseEngine] = {}
        self._batches: dict[int, int] = {}
        # What its functions return is kept for this plan alone, so that a solve is of these values.
        domain = problem.domain
        if domain.shape is not None:
            domain = dataclasses.replace(domain, shape=domain.shape.with_parameters({}))
        self._own = problem = dataclasses.replace(problem, domain=domain)
        self._choose(problem, local_solver)
        self._lay_out(problem, wanted.get("window"))
        self.batch(problem.problems)  # memory that is short is said before anything is evaluated
        self._plan = self.grid, self.partition.owned
        self.told: Fingerprint = world.run_on_all(
            lambda: plan_fingerprint(problem, *self._plan, keep=True)
        )

    def changed(self, problem: Problem) -> list[str]:
        """Return the names of data that differ from those planned for, as far as this rank sees them."""
        kind = fingerprint_of_kind(problem, self.grid)
        another = changed({name: self.told[name] for name in kind}, kind)
        return another or changed(self.told, plan_fingerprint(problem, *self._plan))

    def _choose(self, problem: Problem, local_solver: str | PathLike | LocalSolver | None) -> None:
        """Find the local solver and bind it to the problem, on a grid of its spacing."""
        with argument("local_solver"):
            self._unbound = self._local_solver(problem, local_solver)
            spacing = None if self._unbound is None else self._unbound.spacing
            self.grid = problem.domain.grid(spacing)
        axes, dims = len(self.grid.shape), self.settings.dims
        if dims is not None and len(dims) != axes:
            with argument("dims"):
                raise ValueError(
                    f"{times(dims)} are ranks along {len(dims)} axes, the domain has {axes}: give one number for "
                    f"each, along {coordinates(axes)}"
                )
        if self._unbound is not None and axes not in getattr(self._unbound, "axes", (2,)):
            solver, here = getattr(self._unbound, "name", "this one"), times(self.grid.shape)
            kinds, domain = ("squares", "a box") if axes != 2 else ("cubes", "a rectangle")
            raise Unsupported(
                f"local_solver: {solver} is of {kinds}, and {here} cells are {domain}: take 'exact', or a model for "
                f"{'cubes' if axes != 2 else 'squares'}"
            )
        self.model = getattr(self._unbound, "digest", None)  # a checksum of the model's file
        with argument("sides"):
            problem.conditions.require_parts(self.grid)
        with argument("local_solver" if problem.domain.shape is None else "domain"):
            self.bound = self._bind(problem)
        if not self.fill and self.bound.subdomains(self.grid) is None:
            raise Unsupported(
                f"keep='interface': {self.bound.name} solves on the whole grid here, without an interface; give a "
                "window, or an output"
            )

    def _local_solver(
        self, problem: Problem, local_solver: str | PathLike | LocalSolver | None
    ) -> LocalSolver | None:
        """Return the local solver; None for problems that are solved on the whole grid by any of ours."""
        if local_solver is not None and not isinstance(local_solver, (str, PathLike)):
            if hasattr(local_solver, "bind"):
                return local_solver
            kind = type(local_solver).__name__
            raise TypeError(f"a name, a path or a LocalSolver is needed, got {kind}")
        name = None if local_solver is None else str(local_solver)
        plane = len(problem.domain.cells) == 2
        alike = problem.operator.constant and problem.plain
        if (name is None and not (alike and plane)) or (name == "exact" and not alike):
            return None
        from mosaicdd.schwarz.local_solvers.loading import default_local_solver, find_local_solver

        if name is not None:
            return self.world.on_root(lambda: find_local_solver(name))
        transforms = self.settings.device == "cpu" and not self.settings.of_subdomains
        return self.world.on_root(lambda: default_local_solver(problem, transforms=transforms))

    def _bind(self, problem: Problem) -> Method:
        """Bind the local solver; what nothing certifies is tested."""
        settings, world = self.settings, self.world
        operator = world.run_on_all(lambda: problem.operator)
        if isinstance(
            operator, Nonlinear
        ):  # random values show it, which processors may round otherwise
            operator.take_structure(world.on_root(lambda: operator.structure))
        bind = system_of if self._unbound is None else self._unbound.bind
        bound = world.run_on_all(lambda: bind(problem, self.grid))
        if settings.network_dtype != settings.dtype:
            bound = bound.in_precision(settings.network_dtype)
        if settings.certify is None:
            world.on_root(bound.require_sound)
        return bound.guarded() if settings.out_of_range == "exact" else bound

    def _lay_out(self, problem: Problem, window: Extent | None) -> None:
        """Share the nodes of the grid out to the ranks."""
        with argument(f"cells={times(self.grid.shape)}"):
            boxes = self.bound.boxes(self.grid, problem.conditions.periodic)
        self.extent = None
        if window is not None:
            self.require_field("window")
            with argument("window"):
                self.extent = Window.of_extent(self.grid, window)
        self.window = self.extent or Window.whole(self.grid)
        self.groups = Replicas(self.world, self.settings.replicas, self.settings.dims)
        ranks, shape, cuts = self.groups.ranks, problem.domain.shape, None
        if shape is not None and ranks.size > 1:  # the unknowns are shared evenly, not the area
            with argument("domain"):
                cuts = ranks.balanced(active_nodes(shape, boxes, ranks))
        self.ranks = ranks.fitted(boxes.counts, cuts)
        self.partition = Partition(boxes, self.ranks)

    @property
    def spoken_for(self) -> Slices:
        """The nodes of the domain that this rank speaks for, none in groups but the first."""
        own = self.partition.owned
        return tuple(slice(0, 0) for _ in own) if self.groups.index else own

    def require_field(self, name: str) -> None:
        """Check that nothing is asked for of a field that is left out.

        `Unsupported` if it is, with the argument's name.
        """
        if not self.fill:
            raise Unsupported(
                f"{name}: the field is left out by keep='interface'; leave out one of them"
            )

    def batch(self, problems: int) -> int:
        """Return the number of problems that a group solves at once, at most; they fit the memory.

        `ValueError` if there are fewer problems than groups, or a batch does not fit, or the fields do not that no
        file takes.
        """
        if problems in self._batches:
            return self._batches[problems]
        world, subdomains = self.world, self.bound.subdomains(self.grid)
        if self.groups.count > problems:
            raise ValueError(
                f"replicas={self.groups.count}: each needs a problem of its own, there "
                f"{'is 1' if problems == 1 else f'are {problems}'}"
            )
        share = len(self.groups.share(problems, 0))  # the largest
        default = max(1, min(_IN_TURN, _NODES_IN_TURN // math.prod(self.grid.nodes)))
        if subdomains is not None:  # methods without inner products take many problems at once
            default = max(1, _SUBDOMAINS // subdomains) if self.settings.takes_many else 1
        rounds = -(-share // min(self.settings.batch or default, share))
        batch = -(-share // rounds)  # of equal size, so that one plan serves all
        itemsize = np.dtype(self.settings.dtype).itemsize
        certified, nodes = self.settings.certify is not None, math.prod(self.grid.nodes)

        def needed(count: int) -> int:
            each = self.bound.bytes_per_node(itemsize, count, certified=certified)
            return int(each * nodes) // self.ranks.size

        fields, instead = 0, "fewer cells"
        if self.fill and self.output is None:  # in memory
            ends = zip(self.window.start, self.window.stop, strict=True)
            fields = problems * math.prod(b - a for a, b in ends) * itemsize // world.size
            instead = f"an output, which takes the field strip by strip, or {instead}"
            if subdomains is not None and len(self.grid.shape) == 2:
                instead = f"keep='interface', {instead}"
        with argument(f"cells={times(self.grid.shape)}"):
            require_memory(world, needed(1) + fields, instead, self.grid.shape)
        if batch > 1:
            with argument(f"batch={batch}"):
                require_memory(world, needed(batch), "a smaller batch")
        self._batches[problems] = batch
        return batch

    def take(self, problem: Problem) -> None:
        """Take the source and the coefficients of a problem over; a source that is new is planned for.

        Arrays that were planned for may have changed since: they are not copied, and those of the problem have the values.
        """
        own, new = self._own.operator, problem.operator
        if not (own.constant or new.constant):
            for name, field in new.fields.items():
                own.fields[name].follow(field)
        source = self.bound.source
        if source is None and problem.source is not None:
            self.bound, self._engines = self._bind(problem), {}
        elif source is not None:
            source.update(problem)

    def engine(self, problems: int, batch: int) -> BaseEngine:
        """Return the engine of so many problems at once; that of a whole batch stays, too."""
        if problems not in self._engines:
            kept = {n: engine for n, engine in self._engines.items() if n == batch}
            engine = engine_of(self.bound.method)(
                self.partition,
                self.bound,
                self.settings,
                FieldRequest(problems, self.fill, self.extent, self._beyond),
                self.clock,
            )
            self._engines = kept | {problems: engine}
            if isinstance(self._own.domain.shape, Level):  # it has become equations
                self._own.domain.shape.field.forget()
        return self._engines[problems]


_NODES = 2**21  # of the grid, looked at together
# Of all problems of a batch: beyond, one gains nothing (`benchmarks/batch.py`).
_SUBDOMAINS = 8192
# Problems of a batch that are solved one after another, whose fields are kept until all are, and nodes of their grids
# together: a job that is killed solves a batch anew.
_IN_TURN, _NODES_IN_TURN = 16, 2**22


def active_nodes(shape: Shape, boxes: NodeBoxes, ranks: Ranks) -> np.ndarray:
    """Count the nodes inside a shape in each box; all ranks together.

    Every rank looks at its share of the grid.

    Returns ``boxes.counts``, integers.
    """
    rows, *across = (np.array(edges) for edges in boxes.edges)
    row = math.prod(ends[-1] for ends in across)

    def count() -> np.ndarray:
        counts = np.zeros(boxes.counts)
        mine, step = ranks.share(len(counts)), max(1, _NODES // (int(np.diff(rows).max()) * row))
        for first in range(mine.start, mine.stop, step):
            strip = rows[first : min(first + step, mine.stop) + 1]
            part = slice(strip[0], strip[-1]), *(slice(0, ends[-1]) for ends in across)
            inside = shape.inside(shape.level(boxes.grid, part))
            for axis, cuts in reversed(list(enumerate((strip - strip[0], *across)))):
                until = np.insert(np.cumsum(inside, axis=axis, dtype=int), 0, 0, axis=axis)
                inside = np.diff(np.take(until, cuts, axis), axis=axis)  # between cuts
            counts[first : first + len(strip) - 1] = inside
        return counts

    return ranks.sum(ranks.run_on_all(count)).astype(int)
