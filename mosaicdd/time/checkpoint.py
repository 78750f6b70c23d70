"""Checkpoints of a march: the last values, and where it is; beside its output, as those of other solves."""

import time
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mosaicdd.axes import times
from mosaicdd.problems.fields.evaluated import checksum, over_ranks
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.problem import Problem
from mosaicdd.solvers.settings import Output
from mosaicdd.storage.atomic import remove_checkpoint
from mosaicdd.storage.checkpoint_file import (
    MARCH,
    digest_of_sides,
    read_array,
    read_state,
    writing_checkpoint,
)
from mosaicdd.time.data import SidesInTime, one_in_time, snapshots_of
from mosaicdd.time.frames import Record
from mosaicdd.time.settings import TimeSettings
from mosaicdd.time.stepper import TimeIntegrator
from mosaicdd.time.steps import StepSequence


class TimeCheckpoint:
    """The checkpoint file of a march; all ranks call its methods together.

    Parameters
    ----------
    output
        The checkpoint is ``OUTPUT.checkpoint``.
    problem, time_settings, stepper
        What is marched, and what takes the steps.
    initial
        A number that tells this rank's initial values of all problems from others.
    told
        What else must be equal for a checkpoint to be of use, by name.
    """

    def __init__(
        self,
        output: Output,
        problem: Problem,
        time_settings: TimeSettings,
        stepper: TimeIntegrator,
        initial: int,
        told: dict,
    ):
        self.path = Path(f"{output.path}.checkpoint")
        self._problem, self._time, self._stepper = problem, time_settings, stepper
        self._initial, self._told, self._share = initial, told, stepper.share
        self._seconds, self._saved = 60 * output.checkpoint_minutes, time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time for one, by the clock of this rank."""
        return time.monotonic() - self._saved >= self._seconds

    def save(self, ended: Sequence[Record], steps: StepSequence) -> None:
        """Write a checkpoint; on success it replaces the one before.

        ``ended``: the problems before that which is marched.
        """
        share, levels = self._share, steps.levels
        state = {
            "position": str(steps.position),
            "length": str(steps.length),
            "scale": steps.scale,
            "amounts": [known.tolist() for known in levels.amounts],
            "records": [vars(record) for record in (*ended, steps.record)],
        }
        with writing_checkpoint(self.path, share.ranks, MARCH, self._identity, state) as file:
            file.create("levels", (len(levels.values), *share.grid.nodes), "float64")
            parts = (
                (share.without_ghosts(wide)[None], (slice(level, level + 1), *share.owned))
                for level, wide in enumerate(levels.values)
            )
            file.fill("levels", parts)
        self._saved = time.monotonic()

    def load(self, begin: Callable[[int], StepSequence]) -> tuple[list[Record], StepSequence]:
        """Return the records of the problems that had ended, and the steps of the next one.

        ``begin``: makes the steps of a problem.

        `FileNotFoundError` or `ValueError` on all ranks, if there is none, it is damaged, or belongs to another
        problem, or is further on than all steps that are asked for.
        """
        ranks, identity = self._share.ranks, self._identity

        def read() -> dict:
            if not self.path.exists():
                raise FileNotFoundError(
                    f"{self.path}: the checkpoint file is missing; a march that has ended goes on from its last field, as by "
                    "--initial OLD.h5 to another file"
                )
            return read_state(self.path, MARCH, identity)

        state = ranks.on_root(read)
        position = Fraction(state["position"])
        if position > self._time.steps:
            raise ValueError(
                f"{self.path} is {float(position):g} steps on, and steps={self._time.steps} are asked for: ask for more, or "
                "begin anew without --resume"
            )
        place = slice(None), *self._share.ghosted
        values: Any = ranks.run_on_all(lambda: read_array(self.path, "levels", place))
        *ended, record = [Record(**each) for each in state["records"]]
        steps = begin(len(ended))
        steps.record = record
        steps.keep_frames(len(record.frames))
        steps.levels.values = list(values)
        steps.levels.amounts = [np.array(known) for known in state["amounts"]]
        steps.position, steps.length = position, Fraction(state["length"])
        steps.scale = state["scale"]
        return ended, steps

    def remove(self) -> None:
        """Remove the checkpoint of a march that has ended."""
        self._share.ranks.on_root(lambda: remove_checkpoint(self.path))

    @cached_property
    def _identity(self) -> dict:
        """The identity of a checkpoint, whatever the ranks; of one problem the number of steps may differ.

        Fields that are no numbers and no texts are told by checksums of their values at the nodes, those that change by
        two times. All ranks together.
        """
        problem, share, several = self._problem, self._share, self._stepper.problems
        sums = {"initial values": self._initial}
        for name, array in problem.arrays.items():
            if not isinstance(array.values, str):
                each = range(several if array.times is not None else 1)
                fields = (one_in_time(problem, number).arrays[name] for number in each)
                sums[f"values of {name}"] = in_order(map(self._checksum, fields))
        shape, sides = problem.domain.shape, SidesInTime(problem.conditions)
        if shape is not None:
            sums["domain"] = checksum(shape.level(share.grid, share.owned)[None], share.owned)
        at_two_times = [problem.with_sides(sides(t)) for t in (0.0, 1.0)]
        return {
            "problems": several,
            "cells": times(problem.domain.cells),
            "pde": problem.equation.name,
            "local solver": self._stepper.solver.local_solver,
            "method": self._time.method,
            "dt": self._time.dt,
            "every": self._time.every,
            "tolerance": self._time.tolerance,
            "parameters": problem.described,
            "given f": str(problem.source),
            "boundary": digest_of_sides(at_two_times, share.grid),
            "steps": self._time.steps if several > 1 else None,
            **self._told,
        } | over_ranks(sums, share.ranks.allgather)

    def _checksum(self, field: Field) -> int:
        """Return that of a field's values at the nodes that this rank owns."""
        grid, own = self._share.grid, self._share.owned
        stills = (s.sample_as_given(grid, own, checked=False) for s in snapshots_of(field))
        return in_order(checksum(values, own) for values in stills)


def in_order(sums: Iterable[int]) -> int:
    """Return a checksum of checksums, which tells their order, too."""
    return sum((number + 1) * total for number, total in enumerate(sums)) % 2**64
