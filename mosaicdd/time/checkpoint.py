"""Checkpoints of a march: the last values, and where it is; beside its output, as those of other solves."""

import time
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from mosaicdd.parallel.collect import collect
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.field_share import FieldShare
from mosaicdd.schwarz.settings import Output
from mosaicdd.storage.series_file import read_levels, read_march, writing_march
from mosaicdd.time.frames import Frames
from mosaicdd.time.identity import identity_of
from mosaicdd.time.levels import Levels
from mosaicdd.time.record import Record
from mosaicdd.time.settings import TimeSettings
from mosaicdd.time.step_control import StepControl


class Marching(Protocol):
    """What a checkpoint keeps, and puts back."""

    problem: Problem
    time: TimeSettings
    share: FieldShare
    first: np.ndarray
    levels: Levels
    control: StepControl
    record: Record
    frames: Frames
    solved: str


class TimeCheckpoint:
    """The checkpoint file of a march; all ranks call its methods together.

    Parameters
    ----------
    output
        The checkpoint is ``OUTPUT.checkpoint``.
    march
        What is kept.
    """

    def __init__(self, output: Output, march: Marching):
        self.path = Path(f"{output.path}.checkpoint")
        self._march = march
        self._seconds = 60 * output.checkpoint_minutes
        self._saved = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time for one, by the clock of this rank."""
        return time.monotonic() - self._saved >= self._seconds

    def save(self) -> None:
        """Write a checkpoint; on success it replaces the one before."""
        march, share = self._march, self._march.share
        values = march.levels.values
        state = {
            "position": str(march.control.position),
            "length": str(march.control.length),
            "scale": march.control.scale,
            "frames": march.frames.times,
            "record": march.record.arrays(),
        }
        identity, grid = self._identity, share.grid
        with share.ranks.held_by_root(
            lambda: writing_march(self.path, identity, state, len(values), grid)
        ) as write:
            for number, wide in enumerate(values):

                def sink(array: np.ndarray, place: tuple[slice, ...], level: int = number) -> None:
                    if write is not None:
                        write(level, array, place)

                collect(share.ranks, [(share.owned(wide), share.own)], np.float64, 2, sink)
        self._saved = time.monotonic()

    def load(self) -> None:
        """Put a march back to where the checkpoint was written.

        Raises
        ------
        FileNotFoundError, ValueError
            On all ranks, if there is none, it is damaged, or belongs to another problem.
        """
        march, ranks = self._march, self._march.share.ranks
        identity = self._identity
        state = ranks.on_root(lambda: read_march(self.path, identity))
        values: Sequence[np.ndarray] = ranks.agree(lambda: read_levels(self.path, march.share.wide))
        march.frames.times[:] = state["frames"]
        march.frames.keep(len(state["frames"]))
        march.levels.values = list(values)
        march.control.position = Fraction(state["position"])
        march.control.length = Fraction(state["length"])
        march.control.scale = state["scale"]
        march.record = Record(**state["record"])

    def remove(self) -> None:
        """Remove the checkpoint of a march that has ended."""
        self._march.share.ranks.on_root(lambda: self.path.unlink(missing_ok=True))

    @cached_property
    def _identity(self) -> dict:
        """What must be equal for the checkpoint to be of use."""
        return identity_of(self._march)
