"""Checkpoints of a march: the last values, and where it is; beside its output, as those of other solves."""

import hashlib
import time
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np

from mosaicdd.lattice.axes import times
from mosaicdd.parallel.collect import collect
from mosaicdd.problems.discretisation.given_conditions import conditions_of
from mosaicdd.problems.fields.checksum import checksum
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.in_time import SidesInTime, stills_of
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.settings import Output
from mosaicdd.storage.series_file import read_levels, read_march, writing_march
from mosaicdd.time.frames import Record
from mosaicdd.time.settings import TimeSettings
from mosaicdd.time.steps import Stepping


class TimeCheckpoint:
    """The checkpoint file of a march; all ranks call its methods together.

    Parameters
    ----------
    output
        The checkpoint is ``OUTPUT.checkpoint``.
    problem, time
        What is marched.
    steps
        What is kept, and put back.
    """

    def __init__(
        self, output: Output, problem: Problem, time_settings: TimeSettings, steps: Stepping
    ):
        self.path = Path(f"{output.path}.checkpoint")
        self._problem, self._time, self._steps = problem, time_settings, steps
        self._share = steps.stepper.share
        self._seconds = 60 * output.checkpoint_minutes
        self._saved = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time for one, by the clock of this rank."""
        return time.monotonic() - self._saved >= self._seconds

    def save(self) -> None:
        """Write a checkpoint; on success it replaces the one before."""
        steps, share = self._steps, self._share
        values = steps.levels.values
        state = {
            "position": str(steps.control.position),
            "length": str(steps.control.length),
            "scale": steps.control.scale,
            "frames": steps.frames.times,
            "record": vars(steps.record),
        }
        identity, grid = self._identity, share.grid
        with share.ranks.held_by_root(
            lambda: writing_march(self.path, identity, state, len(values), grid)
        ) as write:
            for number, wide in enumerate(values):

                def sink(array: np.ndarray, place: tuple[slice, ...], level: int = number) -> None:
                    if write is not None:
                        write(level, array, place)

                own = share.owned(wide)
                collect(share.ranks, [(own, share.own)], np.float64, own.ndim, sink)
        self._saved = time.monotonic()

    def load(self) -> None:
        """Put a march back to where the checkpoint was written.

        `FileNotFoundError` or `ValueError` on all ranks, if there is none, it is damaged, or belongs to another
        problem.
        """
        steps, ranks, identity = self._steps, self._share.ranks, self._identity
        state = ranks.on_root(lambda: read_march(self.path, identity))
        values: Sequence[np.ndarray] = ranks.agree(lambda: read_levels(self.path, self._share.wide))
        steps.frames.times[:] = state["frames"]
        steps.frames.keep(len(state["frames"]))
        steps.levels.values = list(values)
        steps.control.position = Fraction(state["position"])
        steps.control.length = Fraction(state["length"])
        steps.control.scale = state["scale"]
        steps.record = Record(**state["record"])

    def remove(self) -> None:
        """Remove the checkpoint of a march that has ended."""
        self._share.ranks.on_root(lambda: self.path.unlink(missing_ok=True))

    @cached_property
    def _identity(self) -> dict:
        """What must be equal for it to be of use, whatever the ranks; the number of steps may differ.

        Fields that are no numbers and no texts are told by checksums of their values at the nodes, those that change by
        two times. All ranks together.
        """
        problem, share, first = self._problem, self._share, self._steps.first
        sums = {"initial values": checksum(share.owned(first)[None], share.own)}
        for name, field in problem.arrays.items():
            if not isinstance(field.values, str):
                sums[f"values of {name}"] = self._checksum(field)
        shape = problem.domain.shape
        if shape is not None:
            sums["domain"] = checksum(shape.level(share.grid, share.own)[None], share.own)
        together = np.array(share.ranks.allgather(list(sums.values())), np.uint64)
        totals = together.sum(axis=0, dtype=np.uint64).tolist()
        return {
            "cells": times(problem.domain.cells),
            "pde": problem.equation.name,
            "local solver": self._steps.stepper.solver.local_solver,
            "method": self._time.method,
            "dt": self._time.dt,
            "every": self._time.every,
            "tolerance": self._time.tolerance,
            "parameters": problem.described,
            "field f": str(problem.source),
            "boundary": self._digest(),
        } | {name: f"{total:016x}" for name, total in zip(sums, totals, strict=True)}

    def _checksum(self, field: Field) -> int:
        """Return that of a field's values at the nodes that this rank owns."""
        share, total = self._share, 0
        for number, still in enumerate(stills_of(field)):
            values = still.sample_as_given(share.grid, share.own, checked=False)
            total += (number + 1) * checksum(values, share.own)
        return total % 2**64

    def _digest(self) -> str:
        """Return what tells values on the outline at two times from others."""
        problem, sides = self._problem, SidesInTime(self._problem.conditions)
        content = [
            condition.told()
            for t in (0.0, 1.0)
            for condition in conditions_of(problem.with_sides(sides(t)), self._share.grid)
        ]
        return hashlib.sha256(b"".join(content)).hexdigest()[:16]
