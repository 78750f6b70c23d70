"""What a march leaves on a rank, and how a solution file is made of it."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from os import PathLike

import numpy as np

from mosaicdd.lattice.axes import Slices, moved
from mosaicdd.lattice.grid import Grid
from mosaicdd.parallel.collect import Part
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.fingerprint import Told, told_of_rest
from mosaicdd.problems.in_time import CoefficientsInTime, SidesInTime
from mosaicdd.problems.limits import just_before
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.shape import Shape, has_values
from mosaicdd.storage.domain_file import ACTIVE
from mosaicdd.storage.shards import ShardFile, write_shards
from mosaicdd.storage.solution_writer import writing_solutions
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
        wanted, shape = self.store.wanted, self.problem.domain.shape
        last, grid, count = self.last, self.grid, len(self.ended)
        boundaries = last.boundaries(grid)
        with writing_solutions(
            path,
            grid,
            boundaries * (count // len(boundaries)),
            "float64",
            ranks=ranks,
            problem=last,
            window=wanted.window,
            shards=self._shards(path, ranks) if shards else None,
            times=self.times,
        ) as writer:
            if not shards:
                writer.fill("solution", self._parts())
            if shape is not None:
                writer.create(ACTIVE, wanted.window.shape, "uint8", common=True)
                writer.fill(ACTIVE, self._active(shape))
            writer.inputs(last, grid, "float64", wanted.own)
            writer.describe(self.report, [member.record.arrays() for member in self.ended])

    def _parts(self) -> Iterator[Part]:
        """Yield what this rank hands over of all fields, NaN of those that their problems did not reach."""
        for at in range(len(self.times)):
            for problem, member in enumerate(self.ended):
                number = problem * self.most + at if at < len(member.times) else None
                for values, place in self.store.parts(number):
                    where, leading = self._where(at, problem, place)
                    yield values[leading], where

    def _active(self, shape: Shape) -> Iterator[Part]:
        """Yield where the first field has values, as all others have."""
        for values, place in self.store.parts(0):
            nodes = moved(place, self.store.wanted.window.start)
            yield has_values(shape, self.grid, nodes, values).astype(np.uint8), place

    def _where(self, at: int, problem: int, place: Slices) -> tuple[Slices, tuple]:
        """Return where a part of a field belongs in the file, and what gives it the axes for that."""
        several = [slice(problem, problem + 1)] if len(self.ended) > 1 else []
        leading = slice(at, at + 1), *several
        return (*leading, *place), (None,) * len(leading)

    def _shards(self, path: str | PathLike, ranks: Ranks) -> list[ShardFile]:
        """Let every rank write its part of all fields to a file of its own; return all of them."""
        counts = len(self.times), *([len(self.ended)] if len(self.ended) > 1 else [])
        place = (*(slice(0, count) for count in counts), *self.store.wanted.place)
        return write_shards(str(path), ranks, self._parts(), place, "float64", nullcontext())
