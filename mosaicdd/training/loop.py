"""A training from a dataset to a model file, on any number of ranks.

Beside the model ``OUT`` lie ``OUT.checkpoint-STEP`` while it runs, from which it can be resumed, and
``OUT.metrics.jsonl``, one line per validation.
"""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from mosaicdd.local_solvers.lifting import Lifting
from mosaicdd.local_solvers.models.weights import extract_weights
from mosaicdd.local_solvers.networks.network import Network
from mosaicdd.local_solvers.networks.own import allow
from mosaicdd.local_solvers.networks.registry import build_network, check_settings, is_family
from mosaicdd.local_solvers.training_range import SpectrumRange
from mosaicdd.parallel.machine import device_memory
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.watch import Watch
from mosaicdd.problems.equations import equation, find_equation
from mosaicdd.storage.atomic import require_writable
from mosaicdd.storage.dataset_file import Dataset, read_dataset
from mosaicdd.storage.metrics_file import MetricsFile, TensorBoardEvents
from mosaicdd.storage.model_file import ModelCard, write_model
from mosaicdd.training.checkpoints import Checkpoints
from mosaicdd.training.family import family_ranges
from mosaicdd.training.lessons import find_lesson
from mosaicdd.training.memory_plan import MemoryPlan, memory_plan
from mosaicdd.training.objective import require_trainable
from mosaicdd.training.rank_group import RankGroup, rank_group
from mosaicdd.training.seeded import seeded
from mosaicdd.training.serial import LessonResult, SerialTraining
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings
from mosaicdd.training.trainer import Trainer
from mosaicdd.training.validation import Report
from mosaicdd.unsupported import Unsupported

logger = logging.getLogger(__name__)

_FAR_OFF = 0.1  # of what the lifting leaves


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
    progress: Callable[[Any], None] | None = None,
) -> "TrainingResult | LessonResult":
    """Train a network on a dataset and write its best weights to a model file.

    Parameters
    ----------
    data, output
        The dataset or its file, and the model file.
    network, network_settings
        Its name, or ``module:Class``, and those of its settings that are not the defaults. The networks
        ``conductances`` and ``operator`` learn from media, ``correction`` and ``unrolled`` from squares of a
        nonlinear equation; these four train on one rank, on the processor.
    pde
        Where to find the data's equation if it is your own, as ``FILE.py:NAME``; its file is run.
    ranks
        Who train together, and all call this: a communicator, `Ranks`, or None for this process alone
        and under torchrun.
    device
        ``"cpu"`` or ``"cuda"``.
    resume
        Whether to continue from the newest checkpoint.
    progress
        Called with a `Report`, of the four a `SerialReport`, at every validation, on all ranks.

    Raises
    ------
    ValueError, OSError
        If the input is not sound; before any work.
    Unsupported
        If one of the four is to train on several ranks, or on a GPU.
    TrainingDivergedError
        If the loss becomes NaN or infinite.
    """
    if lesson := find_lesson(network):
        with Ranks.of(ranks) as world:
            if (
                world.size > 1
                or device != "cpu"
                or execution not in (None, ExecutionSettings())
                or pde
            ):
                raise Unsupported(
                    f"the network {network} trains on one rank, on the processor: leave out ranks, device, pde "
                    "and execution"
                )
        alone = SerialTraining(lesson, data, output, settings, network_settings)
        if resume:
            alone.resume()
        return alone.run(progress)
    training = Training(data, output, settings, execution, network, network_settings, pde=pde)
    with rank_group(ranks, device) as group:
        training.join(group, resume)
        return training.run(group, progress)


class Training:
    """A training whose input has been checked: what is learned from, how, and into which file.

    Parameters
    ----------
    data, output, settings, execution, network, network_settings, pde
        As of `train`, and so are the errors.
    tensorboard
        Folder for events with the metrics; none if not given.
    """

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
    ):
        self.output = Path(output)
        self.settings = settings or TrainingSettings()
        self.execution = execution or ExecutionSettings()
        self.network = network
        self.network_settings = network_settings or {}
        self._tensorboard = tensorboard
        if ":" in network:
            allow(network)
        checked: Any = check_settings(network, self.network_settings)
        require_writable(output)
        if pde is not None:
            find_equation(pde)
        self.dataset = data if isinstance(data, Dataset) else read_dataset(data)
        equation(self.dataset.pde)
        self._built = build_network(network, self.network_settings, self.dataset.subdomain)
        require_trainable(self._built, self.settings, self.execution, self.dataset)
        identity = {"network": network, "network settings": asdict(checked)}
        identity |= asdict(self.settings) | {"dataset": self.dataset.content_hash}
        self.checkpoints = Checkpoints(
            self.output, identity | {"sharding": self.execution.sharding}
        )
        self._state: dict | None = None

    @property
    def metrics_path(self) -> Path:
        """Where the metrics are written."""
        return Path(f"{self.output}.metrics.jsonl")

    def join(self, ranks: RankGroup, resume: bool = False) -> None:
        """Check that the ranks fit, and read the checkpoint to continue from; on all ranks.

        Raises
        ------
        ValueError
            If the ranks do not fit, or the checkpoints belong to another training or are damaged.
        FileNotFoundError
            If there is no checkpoint.
        """
        samples = len(self.dataset.boundary) - self.dataset.held_out
        if is_family(self._built):
            samples //= self.dataset.boundary.shape[1]
        self.execution.require_ranks(ranks.size, self.settings, samples)
        if resume:
            self._state = ranks.agreed(self.checkpoints.read)

    def memory(self, ranks: RankGroup) -> MemoryPlan:
        """Return the memory per device for each way to share it out; ranks on processors share it."""
        levels = memory_plan(
            *(self._built, self.dataset, self.settings, self.execution),
            *(ranks.size, ranks.device.type),
        )
        return MemoryPlan(levels, ranks.size, device_memory(ranks.device, ranks.size))

    def run(
        self,
        ranks: RankGroup,
        progress: Callable[[Report], None] | None = None,
        watch: Watch | None = None,
    ) -> "TrainingResult":
        """Train, write metrics and, at the end, the model; all ranks call this together.

        Parameters
        ----------
        watch
            What may call for checkpoints and for an end: then no model is written.
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

        def finish() -> None:
            write_model(self.output, result.card, extract_weights(result.network))
            self.checkpoints.remove()

        ranks.on_root(open_metrics)
        result = train_network(
            self.network,
            self.network_settings,
            self.dataset,
            self.settings,
            report,
            ranks=ranks,
            execution=self.execution,
            watch=watch,
            state=self._state,
        )
        if result.finished:
            ranks.on_root(finish)
        return result


@dataclass(frozen=True)
class TrainingResult:
    """A trained network with the report of its best validation and the figures of the run.

    Parameters
    ----------
    finished
        False if the training was interrupted; the network is then not the best one.
    """

    network: Network
    card: ModelCard
    best: Report
    steps: int
    seconds: float
    samples_per_second: float
    finished: bool

    @property
    def parameters(self) -> int:
        """Number of the network's weights."""
        return sum(p.numel() for p in self.network.parameters())

    @property
    def relative_error(self) -> float:
        """Root mean square error over that of the lifting alone: 1 has learned nothing."""
        return self.card.validation["relative_error"]

    @property
    def far_off(self) -> bool:
        """Whether the network has hardly learned its equation: it would fail its self-test."""
        return not self.relative_error <= _FAR_OFF

    @property
    def figures(self) -> dict:
        """What a script wants to know, as plain values."""
        return {
            "status": "finished" if self.finished else "interrupted",
            "validation_mse": self.best.validation_mse,
            "window_mse": self.best.window_mse,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "samples_per_second": round(self.samples_per_second, 1),
            "ranks": self.card.training["ranks"],
            "network": self.card.network,
            "parameters": self.parameters,
        }


def train_network(
    name: str,
    network_settings: dict,
    dataset: Dataset,
    settings: TrainingSettings,
    progress: Callable[[Report], None] | None = None,
    *,
    ranks: RankGroup | None = None,
    execution: ExecutionSettings | None = None,
    watch: Watch | None = None,
    state: dict | None = None,
) -> TrainingResult:
    """Train a network by its name in the registry; all ranks call this together.

    Parameters
    ----------
    progress
        Called with a `Report` at every validation, on all ranks.
    watch
        What may call for checkpoints and for an end.
    state
        `Trainer.state` of the run to continue.

    Raises
    ------
    ValueError
        If the network, a setting or the equation is unknown, or the ranks do not fit the batch.
    TrainingDivergedError
        If the loss becomes NaN or infinite.
    """
    start = time.perf_counter()
    with seeded(settings.seed, None if ranks is None else ranks.device):
        network = build_network(name, network_settings, dataset.subdomain)
        trainer = Trainer(network, dataset, settings, start, ranks, execution)
        before = 0
        if state is not None:
            trainer.load_state(state)
            before = trainer.step
        finished = trainer.run(progress, watch)
    if trainer.parallel.sharded:  # this network has a rank's shards only
        network = build_network(name, network_settings, dataset.subdomain)
        network.load_state_dict(trainer.best_weights)
    seconds = time.perf_counter() - start
    best = trainer.best
    logger.info("trained %d steps, validation MSE %.2e", trainer.step, best.validation_mse)
    card = _card(name, network, dataset, settings, trainer)
    rate = (trainer.step - before) * trainer.batches.size / seconds
    return TrainingResult(network, card, best, trainer.step, seconds, rate, finished)


def _card(
    name: str,
    network: Network,
    dataset: Dataset,
    settings: TrainingSettings,
    trainer: Trainer,
) -> ModelCard:
    """Write down what the network is, was trained on, and reaches."""
    ranges = zip(dataset.hyperparameter_names, dataset.hyperparameters.T, strict=True)
    how = {"steps": trainer.step, "seconds": round(trainer.seconds, 1), "ranks": trainer.ranks.size}
    best = trainer.best
    errors = {"mse": best.validation_mse, "window_mse": best.window_mse}
    left = trainer.held_out.validation.left_by_lifting()
    errors["relative_error"] = (best.validation_mse / left) ** 0.5 if left else 0.0
    remainders = [
        Lifting(operator, dataset.subdomain, settings.lifting_degree).split(
            torch.from_numpy(dataset.boundary[samples])
        )[0]
        for operator, samples in dataset.operators(slice(None))
    ]
    parameters = {}
    if not is_family(network):
        parameters = dict(zip(dataset.parameter_names, dataset.parameters[0].tolist(), strict=True))
    return ModelCard(
        pde=dataset.pde,
        cells=dataset.subdomain.cells,
        size=dataset.subdomain.size,
        network=name,
        settings=asdict(network.settings),
        lifting_degree=settings.lifting_degree,
        boundary_range=[float(dataset.boundary.min()), float(dataset.boundary.max())],
        hyperparameter_ranges={key: [float(v.min()), float(v.max())] for key, v in ranges},
        spectrum=asdict(SpectrumRange.of_remainders(torch.cat(remainders))),
        parameters=parameters,
        ranges=family_ranges(dataset) if is_family(network) else {},
        validation=errors,
        training={**asdict(settings), **asdict(trainer.execution), **how},
        dataset_hash=dataset.content_hash,
    )
