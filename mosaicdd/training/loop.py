"""A training from a dataset to a model file, on any number of ranks.

Beside the model ``OUT`` lie ``OUT.checkpoint-STEP`` while it runs, from which it can be resumed, and
``OUT.metrics.jsonl``, one line per validation. Each rank reads the data.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

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
) -> TrainingResult:
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
    training = Training(data, output, settings, execution, network, network_settings)
    training.require(pde, overwrite=overwrite)
    with rank_group(ranks, device) as group:
        training.join(group, resume)
        return training.run(progress)


_KEPT = 2  # so that one is whole where the newest is damaged


class TrainingCheckpoints:
    """The files ``OUTPUT.checkpoint-STEP`` of one process. The newest two are kept; the newest whole one is read.

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
    """A training: its data, network, settings and model file.

    `require` and `join` check it, the latter with the data and the ranks; `run` then trains.

    Parameters
    ----------
    data, output, settings, execution, network, network_settings
        As of `train`.
    """

    ranks: RankGroup
    dataset: Dataset
    checkpoints: TrainingCheckpoints

    def __init__(
        self,
        data: str | os.PathLike | Dataset,
        output: str | os.PathLike,
        settings: TrainingSettings | None = None,
        execution: ExecutionSettings | None = None,
        network: str = "linear",
        network_settings: dict | None = None,
    ):
        self.data, self.output = data, Path(output)
        self.settings = settings or TrainingSettings()
        self.execution = execution or ExecutionSettings()
        self.network, self.network_settings = network, network_settings or {}
        self._own: str | None = None
        self._state: dict | None = None

    def require(self, pde: str | None = None, *, overwrite: bool = False) -> None:
        """Check what needs no data; arguments and errors as of `train`."""
        if ":" in self.network:
            allow(self.network)
        network_class(self.network)
        names = [self.data] if isinstance(self.data, (str, os.PathLike)) else []
        require_replaceable(self.output, overwrite=overwrite, suffix=".h5", inputs=names)
        self._own = None if pde is None else find_any_equation(pde).name

    @property
    def metrics_path(self) -> Path:
        """Where the metrics are written."""
        return Path(f"{self.output}.metrics.jsonl")

    @property
    def _lesson(self) -> type[EquationLesson]:
        """The class of the network's lesson."""
        family = issubclass(network_class(self.network), FamilyNetwork)
        return FamilyLesson if family else EquationLesson

    def _built(self) -> Network:
        """Return the network with random weights."""
        return build_network(self.network, self.network_settings, self.dataset.subdomain)

    def join(self, ranks: RankGroup, resume: bool = False) -> None:
        """Read the data and the checkpoint to continue from, and check that all fits; on all ranks.

        `ValueError` if network, data, settings and ranks do not fit each other; errors are also those of
        `TrainingCheckpoints.read`.
        """
        self.ranks, self.dataset, lesson = ranks, _read(self.data, ranks), self._lesson

        def described() -> dict:
            network = self._built()
            lesson.require(self.network, network, self.dataset, self.settings, self.execution)
            learned = lesson.learned(network, self.dataset)
            self.execution.require_ranks(ranks.size, self.settings, learned)
            return asdict(network.settings)

        identity = {"network": self.network, "network settings": ranks.agreed(described)}
        self._hash = ranks.of_root(lambda: self.dataset.content_hash)
        if self._own not in (None, self.dataset.pde):
            raise ValueError(
                f"pde: it is the equation {self._own}, the data are of {self.dataset.pde}; leave it out"
            )
        identity |= asdict(self.settings) | {"dataset": self._hash}
        self.checkpoints = TrainingCheckpoints(
            self.output, identity | {"sharding": self.execution.sharding}
        )
        if resume:
            self._state = ranks.agreed(self.checkpoints.read)

    def memory(self) -> MemoryPlan:
        """Return the memory per device for each way to share it out; ranks on processors share it."""
        network, ranks = self._built(), self.ranks
        levels = memory_plan(
            self._lesson, network, self.dataset, self.settings, self.execution, ranks
        )
        return MemoryPlan(levels, ranks.size, device_memory(ranks.device, ranks.size))

    def run(
        self,
        progress: Callable[[Report], None] | None = None,
        watch: Watch | None = None,
        tensorboard: str | None = None,
    ) -> TrainingResult:
        """Train, write metrics and, at the end, the model; all ranks call this together.

        The watch may call for checkpoints and for an end: then no model is written. ``tensorboard``: a folder for
        events with the metrics.
        """
        metrics: list[MetricsFile | TensorBoardEvents] = []
        ranks = self.ranks

        def open_metrics() -> None:
            kept = None if self._state is None else self._state["step"]
            metrics.append(MetricsFile(self.metrics_path, kept))
            if tensorboard is not None:
                metrics.append(TensorBoardEvents(tensorboard, kept))

        def report(state: Report) -> None:
            ranks.on_root(lambda: [file.append(asdict(state)) for file in metrics])
            if progress:
                progress(state)

        ranks.on_root(open_metrics)
        result = self.train(report, watch)
        if (card := result.card) is not None:
            ranks.on_root(lambda: write_model(self.output, card, extract_weights(result.network)))
            ranks.on_root(self.checkpoints.remove)
        return result

    def train(
        self, progress: Callable[[Report], None] | None = None, watch: Watch | None = None
    ) -> TrainingResult:
        """Train, and write nothing; all ranks call this together."""
        settings, ranks, start = self.settings, self.ranks, time.perf_counter()
        with seeded(settings.seed, ranks.device):
            lesson = self._lesson(self._built(), self.dataset, settings, ranks)
            trainer = Trainer(lesson, settings, start, ranks, self.execution)
            if self._state is not None:
                trainer.load_state(self._state)
            before = trainer.step
            finished = trainer.run(progress, watch)
        seconds = time.perf_counter() - start
        network, best, card = lesson.network, trainer.best, None
        if finished:
            with trainer.parallel.whole_weights():
                card = lesson.card(self.network, best)
            how = {"steps": trainer.step, "seconds": round(trainer.seconds, 1), "ranks": ranks.size}
            how = {**asdict(settings), **asdict(self.execution), **how}
            card = replace(card, training=how, dataset_hash=self._hash)
        if trainer.parallel.sharded:  # this network has a rank's shards only
            network = self._built()
            network.load_state_dict(trainer.best_weights)
        logger.info("trained %d steps: %s", trainer.step, best.errors)
        rate = (trainer.step - before) * lesson.batches.size / seconds
        return TrainingResult(
            self.network, network, card, best, trainer.step, seconds, rate, ranks.size
        )


def _read(data: str | os.PathLike | Dataset, ranks: RankGroup) -> Dataset:
    """Return a dataset of a linear equation; the checksum of a file is checked by rank 0 alone."""
    if isinstance(data, Dataset):
        equation(data.pde)
        return data

    def read() -> Dataset:
        dataset = Dataset.read(data)
        equation(dataset.pde)
        return dataset

    dataset = ranks.agreed(lambda: read() if ranks.is_root else None)
    if not ranks.is_root:
        trust_seal(data)
    return ranks.agreed(lambda: read() if dataset is None else dataset)


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
