"""What a march leaves on a rank, and how a solution file is made of it."""

import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from os import PathLike

import numpy as np

from mosaicdd.lattice.axes import Slices, moved
from mosaicdd.lattice.grid import Grid
from mosaicdd.parallel.collect import Part, collect
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.discretisation.given_conditions import conditions_of
from mosaicdd.problems.fingerprint import Told, told_of_rest
from mosaicdd.problems.in_time import CoefficientsInTime, SidesInTime
from mosaicdd.problems.limits import just_before
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.shape import has_values
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.results.given import Sample, samples, write_given
from mosaicdd.schwarz.results.shards_of_ranks import write_shards
from mosaicdd.storage.domain_file import ACTIVE
from mosaicdd.storage.shards import ShardFile
from mosaicdd.storage.solution_writer import SolutionWriter, writing_solutions
from mosaicdd.time.frames import FrameStore
from mosaicdd.time.record import StepsEnded


@dataclass(frozen=True)
class Marched:
    """What a march leaves on a rank."""

    problem: Problem
    grid: Grid
    store: FrameStore
    most: int  # fields of a problem, whose numbers in the store follow each other
    report: dict  # what is said of all steps
    ended: Sequence[StepsEnded]  # and of each, and when fields were kept, of each problem

    @property
    def times(self) -> list[float]:
        """Of the fields of that problem which went furthest."""
        return max((member.times for member in self.ended), key=len)

    @property
    def last(self) -> Problem:
        """The problem with the coefficients and the values on its sides at the end; its source is not written."""
        end = just_before(self.times[-1], 0.0)
        sides = SidesInTime(self.problem.conditions)(end)
        return CoefficientsInTime(self.problem)(end).with_sides(sides).with_fields(f=0.0)

    def told(self) -> Told:
        """Return what tells the data that are written from others; of values on sides those at the end."""
        return told_of_rest(self.last, self.grid, self.store.wanted.own)

    def part(self, number: int, problem: int) -> np.ndarray:
        """Return what this rank has of a field; NaN if its problem did not go so far."""
        if number >= len(self.ended[problem].times):
            return np.full(self.store.wanted.shape, np.nan)
        return self.store.part(problem * self.most + number)

    def write(self, path: str | PathLike, ranks: Ranks, *, shards: bool) -> None:
        """Write a solution file with all times; all ranks together.

        `OSError` on all ranks, if it cannot be written.
        ``shards``: each rank its part to a file of its own.
        """
        times, count = self.times, len(self.ended)
        fields = [(at, problem) for problem in range(count) for at in range(len(times))]
        parts_of_ranks = self._shards(path, ranks, fields) if shards else None

        def begin() -> AbstractContextManager[SolutionWriter]:
            last, grid = self.last, self.grid
            shape, boundaries = self.problem.domain.shape, last.boundaries(grid)
            return writing_solutions(
                path,
                grid,
                boundaries * (count // len(boundaries)),
                "float64",
                window=self.store.wanted.window,
                shards=parts_of_ranks,
                sides=None if last.plain else conditions_of(last, grid),
                edges=self._edges(last) if shape is not None else [],
                times=times,
            )

        def complete() -> None:
            if writer is not None:
                self._write_given(writer)
                writer.describe(self.report, [member.record.arrays() for member in self.ended])

        with ranks.held_by_root(begin) as writer:
            for at, problem in fields if not shards else []:

                def write(
                    values: np.ndarray, place: Slices, at: int = at, problem: int = problem
                ) -> None:
                    if writer is not None:
                        where, leading = self._where(at, problem, place)
                        writer.write("solution", values[leading], where)

                if at < len(self.ended[problem].times):
                    self.store.to_root(ranks, problem * self.most + at, write)
                else:
                    ranks.only_root(functools.partial(_leave_empty, writer, problem, at))
            if self.problem.domain.shape is not None:
                self._write_active(ranks, writer, shards=shards)
            ranks.on_root(complete)

    def _write_active(self, ranks: Ranks, writer: SolutionWriter | None, *, shards: bool) -> None:
        """Write where the fields have values, as the first one has; all ranks together."""
        wanted, shape = self.store.wanted, self.problem.domain.shape

        def create() -> None:
            if writer is not None:
                writer.create_common(ACTIVE, wanted.window.shape, "uint8")

        def write(values: np.ndarray, place: Slices) -> None:
            if writer is not None:
                nodes = moved(place, wanted.window.start)
                flags = has_values(shape, self.grid, nodes, values)
                writer.write(ACTIVE, flags.astype(np.uint8), place)

        ranks.on_root(create)
        if shards:
            parts = [(self.part(0, 0), wanted.place)] if wanted.there else []
            collect(ranks, parts, np.float64, len(wanted.place), write)
        else:
            self.store.to_root(ranks, 0, write)

    def _where(self, at: int, problem: int, place: Slices) -> tuple[Slices, tuple]:
        """Return where a part of a field belongs in the file, and what gives it the axes for that."""
        several = [slice(problem, problem + 1)] if len(self.ended) > 1 else []
        leading = slice(at, at + 1), *several
        return (*leading, *place), (None,) * len(leading)

    def _edges(self, last: Problem) -> list[Boundary]:
        edges = last.conditions.edge_values(self.grid)
        return edges * (len(self.ended) // len(edges)) if edges else []

    def _shards(
        self, path: str | PathLike, ranks: Ranks, fields: Sequence[tuple[int, int]]
    ) -> list[ShardFile]:
        """Let every rank write its part of all fields to a file of its own; return all of them."""
        wanted, several = self.store.wanted, len(self.ended) > 1

        def parts() -> Iterator[Part]:
            for at, problem in fields if wanted.there else []:
                where, leading = self._where(at, problem, wanted.place)
                yield self.part(at, problem)[leading], where

        counts = (len(self.times), *([len(self.ended)] if several else []))
        place = (*(slice(0, count) for count in counts), *wanted.place)
        return write_shards(str(path), ranks, parts(), place, "float64", nullcontext())

    def _write_given(self, writer: SolutionWriter) -> None:
        """Write parameters at the end, and a domain that is no rectangle, a few rows at a time."""
        grid = self.grid
        nodes = tuple(slice(0, count) for count in grid.nodes)

        def put(name: str, sample: Sample, dtype: str) -> None:
            for values, place in samples(sample, nodes):
                writer.write(name, values, place)

        write_given(self.last, grid, "float64", writer, put, lambda function: function())


def _leave_empty(writer: SolutionWriter | None, problem: int, at: int) -> None:
    """Write that a field was not reached, by the writer that the root has."""
    if writer is not None:
        writer.leave_empty("solution", problem, at)
