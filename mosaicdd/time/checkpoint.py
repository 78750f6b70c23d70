"""Checkpoints of a march: the last values, and where it is; beside its output, as those of other solves."""

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mosaicdd.axes import times
from mosaicdd.discretisation.given_conditions import conditions_of
from mosaicdd.problems.fields.evaluated import checksum, over_ranks
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.problem import Problem
from mosaicdd.solvers.settings import Output
from mosaicdd.storage.atomic import remove_checkpoint
from mosaicdd.storage.checkpoint_file import MARCH, read_array, read_state, writing_checkpoint
from mosaicdd.time.data import SidesInTime, one_in_time, snapshots_of
from mosaicdd.time.frames import Record, StepsEnded
from mosaicdd.time.settings import TimeSettings
from mosaicdd.time.stepper import TimeIntegrator
from mosaicdd.time.steps import StepSequence


class TimeCheckpoint:
    """The checkpoint file of a march; all ranks call its methods together.

    Parameters
    ----------
    output
        The checkpoint is ``OUTPUT.checkpoint``.
    problem, time_settings
        What is marched.
    stepper
        What takes the steps.
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
        self._initial, self._told = initial, told
        self._share = stepper.share
        self._seconds = 60 * output.checkpoint_minutes
        self._saved = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time for one, by the clock of this rank."""
        return time.monotonic() - self._saved >= self._seconds

    def save(self, ended: Sequence[StepsEnded], steps: StepSequence) -> None:
        """Write a checkpoint; on success it replaces the one before.

        ``ended``: the problems before that which is marched.
        """
        share = self._share
        values = steps.levels.values
        state = {
            "position": str(steps.control.position),
            "length": str(steps.control.length),
            "scale": steps.control.scale,
            "frames": steps.frames.times,
            "record": vars(steps.record),
            "amounts": [known.tolist() for known in steps.levels.amounts],
            "ended": [vars(member) | {"record": vars(member.record)} for member in ended],
        }
        shape = len(values), *share.grid.nodes
        what = share.ranks, MARCH, self._identity, state
        with writing_checkpoint(self.path, *what) as file:
            file.create("levels", shape, "float64")
            parts = (
                (share.without_ghosts(wide)[None], (slice(level, level + 1), *share.owned))
                for level, wide in enumerate(values)
            )
            file.fill("levels", parts)
        self._saved = time.monotonic()

    def load(self, begin: Callable[[int], StepSequence]) -> tuple[list[StepsEnded], StepSequence]:
        """Return the problems that had ended when the checkpoint was written, and the next one as it was then.

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
        ended = [
            StepsEnded(**{**member, "record": Record(**member["record"])})
            for member in state["ended"]
        ]
        steps = begin(len(ended))
        steps.frames.times[:] = state["frames"]
        steps.frames.keep(len(state["frames"]))
        steps.levels.values = list(values)
        # Of a checkpoint before there were amounts what is stored between its values is left out.
        amounts = state.get("amounts", [[0.0]] * len(values))
        steps.levels.amounts = [np.array(known) for known in amounts]
        steps.control.position = position
        steps.control.length = Fraction(state["length"])
        steps.control.scale = state["scale"]
        steps.record = Record(**state["record"])
        return ended, steps

    def remove(self) -> None:
        """Remove the checkpoint of a march that has ended."""
        self._share.ranks.on_root(lambda: remove_checkpoint(self.path))

    @cached_property
    def _identity(self) -> dict:
        """What must be equal for it to be of use, whatever the ranks; of one problem the number of steps may differ.

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
        shape = problem.domain.shape
        if shape is not None:
            sums["domain"] = checksum(shape.level(share.grid, share.owned)[None], share.owned)
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
            "boundary": self._digest(),
            "steps": self._time.steps if several > 1 else None,
            **self._told,
        } | over_ranks(sums, share.ranks.allgather)

    def _checksum(self, field: Field) -> int:
        """Return that of a field's values at the nodes that this rank owns."""
        share = self._share
        stills = (
            s.sample_as_given(share.grid, share.owned, checked=False) for s in snapshots_of(field)
        )
        return in_order(checksum(values, share.owned) for values in stills)

    def _digest(self) -> str:
        """Return what tells values on the outline at two times from others."""
        problem, sides = self._problem, SidesInTime(self._problem.conditions)
        content = [
            condition.digest()
            for t in (0.0, 1.0)
            for condition in conditions_of(problem.with_sides(sides(t)), self._share.grid)
        ]
        return hashlib.sha256(b"".join(content)).hexdigest()[:16]


def in_order(sums: Iterable[int]) -> int:
    """Return a checksum of checksums, which tells their order, too."""
    return sum((number + 1) * total for number, total in enumerate(sums)) % 2**64
