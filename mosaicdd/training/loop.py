"""A training from a dataset to a model file, on any number of ranks.

Beside the model ``OUT`` lie ``OUT.checkpoint-STEP`` while it runs, from which it can be resumed, and
``OUT.metrics.jsonl``, one line per validation.

A network's lesson, and the data that it learns from, read by each of the ranks that train together.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch

from mosaicdd.networks.network import Network, extract_weights
from mosaicdd.networks.registry import FamilyNetwork, allow, build_network, network_class
from mosaicdd.parallel.launcher import Watch
from mosaicdd.parallel.machine import device_memory
from mosaicdd.problems.equations import equation, find_any_equation
from mosaicdd.storage.atomic import remove_checkpoint, require_replaceable, trust_seal
from mosaicdd.storage.checkpoint_file import read_training_checkpoint, write_training_checkpoint
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.storage.hdf5 import first_difference
from mosaicdd.storage.metrics_file import MetricsFile, TensorBoardEvents
from mosaicdd.storage.model_file import write_model
from mosaicdd.torch_defaults import float32_on_processor, on_processor
from mosaicdd.training.equation_lesson import EquationLesson
from mosaicdd.training.family import FamilyLesson
from mosaicdd.training.memory import MemoryPlan, memory_plan
from mosaicdd.training.objective import RankGroup, rank_group
from mosaicdd.training.reports import Report, TrainingResult
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings
from mosaicdd.training.trainer import Trainer


def find_lesson(network: str) -> type[EquationLesson]:
    """Return what a network is taught by; errors as `network_class`."""
    return FamilyLesson if issubclass(network_class(network), FamilyNetwork) else EquationLesson


@dataclass(frozen=True)
class Course:
    """What is learned by which network; the same on all ranks."""

    # lesson, name, values: of the network: its lesson, its name, and those of its settings that are
    # not the defaults
    lesson: type[EquationLesson]
    name: str
    values: dict
    settings: dict  # all of the network's settings
    dataset: Dataset
    dataset_hash: str  # of its content

    @classmethod
    def of(
        cls,
        name: str,
        values: dict,
        data: Any,
        settings: TrainingSettings,
        execution: ExecutionSettings,
        ranks: RankGroup,
    ) -> Self:
        """Read data and check that the network can learn from them as the settings ask; on all ranks.

        `ValueError` if network, data, settings and ranks do not fit each other.
        """
        lesson = find_lesson(name)
        dataset = _read(data, ranks)

        def own() -> dict:
            network = build_network(name, values, dataset.subdomain)
            lesson.require(name, network, dataset, settings, execution)
            execution.require_ranks(ranks.size, settings, lesson.learned(network, dataset))
            return asdict(network.settings)

        described = ranks.agreed(own)
        return cls(
            lesson, name, values, described, dataset, ranks.of_root(lambda: dataset.content_hash)
        )

    def network(self) -> Network:
        """Return a network with random weights."""
        return build_network(self.name, self.values, self.dataset.subdomain)

    def taught(self, settings: TrainingSettings, ranks: RankGroup) -> EquationLesson:
        """Return the lesson of a network with random weights; called by all ranks."""
        return self.lesson(self.network(), self.dataset, settings, ranks)


def _read(data: str | os.PathLike | Dataset, ranks: RankGroup) -> Dataset:
    """Return a dataset of a linear equation; the checksum of a file is checked by rank 0 alone."""

    def read() -> Dataset:
        dataset = data if isinstance(data, Dataset) else Dataset.read(data)
        equation(dataset.pde)
        return dataset

    if isinstance(data, Dataset):
        return read()
    dataset = ranks.agreed(lambda: read() if ranks.is_root else None)
    if not ranks.is_root:
        trust_seal(data)
    return ranks.agreed(lambda: read() if dataset is None else dataset)


logger = logging.getLogger(__name__)


@on_processor()
def train(
    data: str | os.PathLike | Dataset,
    output: str | os.PathLike,
    settings: TrainingSettings | None = None,
    execution: ExecutionSettings | None = None,
    *,
    network: str = "linear",
    network_settings: dict | None = None,
    pde: str | None = None,
    ranks: Any = None,
    device: str = "cpu",
    resume: bool = False,
    overwrite: bool = False,
    progress: Callable[[Report], None] | None = None,
) -> "TrainingResult":
    """Train a network on a dataset and write its best weights to a model file.

    Parameters
    ----------
    data, output
        The dataset or its file, and the model file.
    network, network_settings
        Its name, or ``module:Class``, and those of its settings that are not the defaults.
    pde
        Where to find the data's equation if it is your own, as ``FILE.py:NAME``; its file is run.
    ranks
        Who train together, and all call this: a communicator, `Ranks`, or None for this process alone
        and under torchrun.
    device
        ``"cpu"`` or ``"cuda"``.
    resume
        Whether to continue from the newest checkpoint.
    overwrite
        Whether a file of the model's name that mosaicdd has not written may be replaced, too.
    progress
        Called with a `Report` at every validation, on all ranks.

    Raises
    ------
    ValueError, OSError
        If the input is not sound; before any work.
    Unsupported
        If the network cannot do what a setting asks for.
    TrainingDivergedError
        If the loss becomes NaN or infinite.
    """
    task = (data, output, settings, execution, network, network_settings)
    training = Training(*task, pde=pde, overwrite=overwrite)
    with rank_group(ranks, device) as group:
        training.join(group, resume)
        return training.run(group, progress)


_KEPT = 2  # so that one is whole where the newest is damaged


class TrainingCheckpoints:
    """The files ``OUTPUT.checkpoint-STEP``, used by one process: the newest two are kept, the newest whole one is read.

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
            remove_checkpoint(path)


class Training:
    """A training whose settings have been checked: what is learned from, how, and into which file.

    Parameters
    ----------
    data, output, settings, execution, network, network_settings, pde, overwrite
        As of `train`, and so are the errors.
    tensorboard
        Folder for events with the metrics; none if not given.
    """

    checkpoints: TrainingCheckpoints
    _course: Course

    def __init__(
        self,
        data: str | os.PathLike | Dataset,
        output: str | os.PathLike,
        settings: TrainingSettings | None = None,
        execution: ExecutionSettings | None = None,
        network: str = "linear",
        network_settings: dict | None = None,
        tensorboard: str | None = None,
        pde: str | None = None,
        *,
        overwrite: bool = False,
    ):
        self.output = Path(output)
        self.settings = settings or TrainingSettings()
        self.execution = execution or ExecutionSettings()
        self.network = network
        self.network_settings = network_settings or {}
        self._data, self._tensorboard = data, tensorboard
        if ":" in network:
            allow(network)
        find_lesson(network)
        names = [data] if isinstance(data, (str, os.PathLike)) else []
        require_replaceable(output, overwrite=overwrite, suffix=".h5", inputs=names)
        self._own = None if pde is None else find_any_equation(pde).name
        self._state: dict | None = None

    @property
    def metrics_path(self) -> Path:
        """Where the metrics are written."""
        return Path(f"{self.output}.metrics.jsonl")

    def join(self, ranks: RankGroup, resume: bool = False) -> None:
        """Read this rank's data and the checkpoint to continue from, and check that all fits; on all ranks.

        Errors are those of `Course.of` and of `TrainingCheckpoints.read`.
        """
        self._course = Course.of(
            self.network, self.network_settings, self._data, self.settings, self.execution, ranks
        )
        if self._own not in (None, self._course.dataset.pde):
            raise ValueError(
                f"pde: it is the equation {self._own}, the data are of {self._course.dataset.pde}; leave it out"
            )
        identity = {"network": self.network, "network settings": self._course.settings}
        identity |= asdict(self.settings) | {"dataset": self._course.dataset_hash}
        self.checkpoints = TrainingCheckpoints(
            self.output, identity | {"sharding": self.execution.sharding}
        )
        if resume:
            self._state = ranks.agreed(self.checkpoints.read)

    def memory(self, ranks: RankGroup) -> MemoryPlan:
        """Return the memory per device for each way to share it out; ranks on processors share it."""
        course = self._course
        levels = memory_plan(
            *(course.lesson, course.network(), course.dataset),
            *(self.settings, self.execution, ranks),
        )
        return MemoryPlan(levels, ranks.size, device_memory(ranks.device, ranks.size))

    def run(
        self,
        ranks: RankGroup,
        progress: Callable[[Report], None] | None = None,
        watch: Watch | None = None,
    ) -> "TrainingResult":
        """Train, write metrics and, at the end, the model; all ranks call this together.

        The watch may call for checkpoints and for an end: then no model is written.
        """
        metrics: list[MetricsFile | TensorBoardEvents] = []

        def open_metrics() -> None:
            kept = None if self._state is None else self._state["step"]
            metrics.append(MetricsFile(self.metrics_path, kept))
            if self._tensorboard is not None:
                metrics.append(TensorBoardEvents(self._tensorboard, kept))

        def report(state: Report) -> None:
            ranks.on_root(lambda: [file.append(asdict(state)) for file in metrics])
            if progress:
                progress(state)

        ranks.on_root(open_metrics)
        result = train_course(
            self._course, self.settings, self.execution, ranks, report, watch, self._state
        )
        if (card := result.card) is not None:
            ranks.on_root(lambda: write_model(self.output, card, extract_weights(result.network)))
            ranks.on_root(self.checkpoints.remove)
        return result


def train_course(
    course: Course,
    settings: TrainingSettings,
    execution: ExecutionSettings,
    ranks: RankGroup,
    progress: Callable[[Report], None] | None = None,
    watch: Watch | None = None,
    state: dict | None = None,
) -> TrainingResult:
    """Train, and write nothing; all ranks call this together; see `Training.run`.

    ``state`` is `Trainer.state` of the run to continue.
    """
    start = time.perf_counter()
    with seeded(settings.seed, ranks.device):
        lesson = course.taught(settings, ranks)
        trainer = Trainer(lesson, settings, start, ranks, execution)
        before = 0
        if state is not None:
            trainer.load_state(state)
            before = trainer.step
        finished = trainer.run(progress, watch)
    seconds = time.perf_counter() - start
    network, best, card = lesson.network, trainer.best, None
    if finished:
        with trainer.parallel.whole_weights():
            card = lesson.card(course.name, best)
        how = {"steps": trainer.step, "seconds": round(trainer.seconds, 1), "ranks": ranks.size}
        how = {**asdict(settings), **asdict(execution), **how}
        card = replace(card, training=how, dataset_hash=course.dataset_hash)
    if trainer.parallel.sharded:  # this network has a rank's shards only
        network = course.network()
        network.load_state_dict(trainer.best_weights)
    logger.info("trained %d steps: %s", trainer.step, best.errors)
    rate = (trainer.step - before) * lesson.batches.size / seconds
    return TrainingResult(course.name, network, card, best, trainer.step, seconds, rate, ranks.size)


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's generators, of the processor and of the GPU that is used; put them back in the end.

    So are the precision of products in float32, and the types and places of new tensors, which are the process's, too.
    """
    gpus = [device] if device is not None and device.type == "cuda" else []
    precision = torch.get_float32_matmul_precision()
    with float32_on_processor(), torch.random.fork_rng(gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(precision)
