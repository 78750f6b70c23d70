"""From a dataset and settings to a trained network with its card."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from mosaicdd.local_solvers.lifting import Lifting
from mosaicdd.local_solvers.networks.registry import build_network
from mosaicdd.local_solvers.spectrum_range import SpectrumRange
from mosaicdd.parallel.watch import Watch
from mosaicdd.problems.equations import equation
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.training.execution_settings import ExecutionSettings
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.report import Report
from mosaicdd.training.settings import TrainingSettings
from mosaicdd.training.trainer import Trainer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingResult:
    """A trained network with the report of its best validation and the figures of the run.

    Parameters
    ----------
    finished
        False if the training was interrupted; the network is then not the best one.
    """

    network: torch.nn.Module
    card: ModelCard
    best: Report
    steps: int
    seconds: float
    samples_per_second: float
    finished: bool


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
    torch.manual_seed(settings.seed)
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
    network: torch.nn.Module,
    dataset: Dataset,
    settings: TrainingSettings,
    trainer: Trainer,
) -> ModelCard:
    """Write down what the network is, was trained on, and reaches."""
    ranges = zip(dataset.hyperparameter_names, dataset.hyperparameters.T, strict=True)
    perimeters = torch.from_numpy(dataset.boundary)
    lifting = Lifting(
        equation(dataset.pde), dataset.subdomain, settings.lifting_degree, dtype=perimeters.dtype
    )
    how = {"steps": trainer.step, "seconds": round(trainer.seconds, 1), "ranks": trainer.ranks.size}
    best = trainer.best
    return ModelCard(
        pde=dataset.pde,
        cells=dataset.subdomain.cells,
        size=dataset.subdomain.size,
        network=name,
        settings=asdict(network.settings),
        lifting_degree=settings.lifting_degree,
        boundary_range=[float(dataset.boundary.min()), float(dataset.boundary.max())],
        hyperparameter_ranges={key: [float(v.min()), float(v.max())] for key, v in ranges},
        spectrum=asdict(SpectrumRange.of_perimeters(perimeters, lifting)),
        validation={"mse": best.validation_mse, "window_mse": best.window_mse},
        training={**asdict(settings), **asdict(trainer.execution), **how},
        dataset_hash=dataset.content_hash,
    )
