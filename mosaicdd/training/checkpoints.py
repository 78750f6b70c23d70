"""The checkpoints beside a model file: the newest two are kept, the newest whole one is read."""

import logging
import re
from pathlib import Path

from mosaicdd.storage.checkpoint_file import (
    read_training_checkpoint,
    write_training_checkpoint,
)
from mosaicdd.storage.hdf5 import first_difference

logger = logging.getLogger(__name__)

_KEPT = 2  # so that one is whole where the newest is damaged


class TrainingCheckpoints:
    """The files ``OUTPUT.checkpoint-STEP``, used by one process.

    ``identity`` has settings and data that a continued run must have in common with this one, by name.
    """

    def __init__(self, output: str | Path, identity: dict):
        self._output = Path(output)
        self._identity = identity

    @property
    def files(self) -> list[Path]:
        """The checkpoints that are there, the newest first."""
        pattern = re.compile(re.escape(self._output.name) + r"\.checkpoint-(\d+)")
        by_step = [
            (int(match[1]), path)
            for path in self._output.parent.iterdir()
            if (match := pattern.fullmatch(path.name))
        ]
        return [path for _, path in sorted(by_step, reverse=True)]

    def save(self, state: dict, step: int) -> None:
        """Write a checkpoint, then remove the oldest; an `OSError` names the newest that there is."""
        path = self._output.with_name(f"{self._output.name}.checkpoint-{step:09d}")
        try:
            write_training_checkpoint(path, self._identity, state)
        except OSError as error:
            raise OSError(f"{error}; {self.last_good}") from error
        for old in self.files[_KEPT:]:
            old.unlink(missing_ok=True)

    @property
    def last_good(self) -> str:
        """A remark that names the newest checkpoint."""
        files = self.files
        return f"the last good checkpoint is {files[0]}" if files else "there is no checkpoint yet"

    def read(self) -> dict:
        """Read the newest whole checkpoint; what is damaged is passed over with a warning.

        Errors say that there is none, that all are damaged, or the first difference to another training.
        """
        damaged = []
        for path in self.files:
            try:
                identity, state = read_training_checkpoint(path)
            except ValueError as error:
                damaged.append(str(error))
                continue
            if told := first_difference(identity, self._identity):
                raise ValueError(
                    f"{path} belongs to another training: its {told}; give the same settings, or start without "
                    "resume=True"
                )
            if damaged:
                logger.warning("%s; continuing from %s", "; ".join(damaged), path)
            return state
        if damaged:
            raise ValueError(f"no checkpoint is whole: {'; '.join(damaged)}")
        raise FileNotFoundError(
            f"{self._output}.checkpoint-*: there is no checkpoint; start without resume=True"
        )

    def remove(self) -> None:
        """Remove the checkpoints of a training that has ended."""
        for path in self.files:
            path.unlink(missing_ok=True)
