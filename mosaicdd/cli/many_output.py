"""The one solution file of several problems, which all ranks of all groups write together."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Self

import numpy as np
import torch

from mosaicdd.cli.many_result import Result
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.parallel.collect import Part, collect
from mosaicdd.parallel.replicas import Replicas
from mosaicdd.problems.boundary import Boundary
from mosaicdd.schwarz.fill import Strip
from mosaicdd.schwarz.outcome import Outcome
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopwatch import Stopwatch
from mosaicdd.storage.solution_writer import writing_solutions


class ManyOutput:
    """The solution file of several problems, written by rank 0 part by part; all ranks take part.

    It appears under its name when the ``with`` block that this object guards ends well.
    """

    def __init__(
        self,
        path: str,
        replicas: Replicas,
        lattice: Lattice,
        boundaries: Sequence[Boundary],
        settings: SolveSettings,
        clock: Stopwatch,
    ):
        self._world = replicas.world
        self._maps_shape = tuple(n + 1 for n in lattice.cells)
        self._dtype = settings.dtype
        self._writing = clock.part("write")
        self._new_file = writing_solutions(path, lattice.grid, boundaries, self._dtype)
        self._open = ExitStack()
        self._writer = None
        self._maps: set[str] = set()

    def __enter__(self) -> Self:
        if self._world.is_root:
            self._writer = self._open.enter_context(self._new_file)
        return self

    def __exit__(self, *failure) -> bool | None:
        return self._open.__exit__(*failure)

    def fields(self, strips: Iterator[Strip], members: range) -> None:
        """Write the fields of a batch, or take part in the writing of others."""
        problems = slice(members.start, members.stop)
        parts = ((s.owned.cpu().numpy(), (problems, *s.place)) for s in strips)
        self._collect("solution", parts, self._dtype)

    def maps(self, solutions: Sequence[Outcome], members: range) -> None:
        """Write what is known per lattice node of a batch."""
        self._map(
            "error_estimate",
            [solution.error_estimate.nodes for solution in solutions],
            solutions,
            members,
            self._dtype,
        )
        has_range = any(solution.outside is not None for solution in solutions)
        if self._world.any(has_range):
            outside = [solution.outside.to(torch.uint8) for solution in solutions]
            self._map("outside_training_range", outside, solutions, members, "uint8")

    def _map(
        self,
        name: str,
        values: list[torch.Tensor],
        solutions: Sequence[Outcome],
        members: range,
        dtype: str,
    ) -> None:
        if self._writer is not None and name not in self._maps:
            self._writer.create(name, self._maps_shape, dtype)
            self._maps.add(name)
        parts = []
        if solutions:
            place = slice(members.start, members.stop), *solutions[0].error_estimate.place
            parts = [(torch.stack(values).cpu().numpy(), place)]
        self._collect(name, parts, dtype)

    def _collect(self, name: str, parts: Iterable[Part], dtype: str) -> None:
        def write(array: np.ndarray, place: tuple[slice, ...]) -> None:
            with self._writing:
                self._writer.write(name, array, place)

        collect(self._world, parts, dtype, 3, write)

    def describe(self, report: dict, results: Sequence[Result]) -> None:
        """Write the report, the results and histories, and NaN for what was not begun."""
        if self._writer is None:
            return
        command = {"command_line": " ".join(sys.argv)}
        common = {name: value for name, value in report.items() if name != "problems"}
        small = report["problems"]
        names = [name for name in small[0] if name != "problem"]
        self._writer.describe(
            common | command,
            [result.history for result in results],
            {name: [one[name] for one in small] for name in names},
        )
        for member, result in enumerate(results):
            if not result.begun:
                for name in ("solution", "error_estimate"):
                    self._writer.leave_empty(name, member)
