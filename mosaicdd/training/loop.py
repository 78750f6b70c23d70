"""The training loop, in one process.

A step is Algorithm 1 of the paper without its allreduce: the gradient of the data loss, then that
of the PDE loss on other points added to it. The weights with the least validation error are kept.
"""

import copy
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from mosaicdd.local_solvers.lifting import Lifting, unit_points
from mosaicdd.local_solvers.networks.registry import build_network
from mosaicdd.problems.equations import Equation, equation
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.training.losses import data_loss, pde_loss
from mosaicdd.training.optimisers import build_optimiser, learning_rate_factor
from mosaicdd.training.samples import LiftedSamples, lift_samples, mean_squared_error
from mosaicdd.training.settings import TrainingSettings

logger = logging.getLogger(__name__)

_SAMPLED_NODES = 64


class TrainingDivergedError(RuntimeError):
    """The loss became NaN or infinite; the message names the step."""


@dataclass(frozen=True)
class Report:
    """The state of a training at a validation.

    Parameters
    ----------
    step, progress, seconds
        Steps done, fraction of the training done, and time since its start.
    loss
        Training loss of the last step, on unit remainders.
    validation_mse, window_mse
        Mean squared errors on held-out samples and on windows of larger solutions.
    """

    step: int
    progress: float
    seconds: float
    loss: float
    validation_mse: float
    window_mse: float


@dataclass(frozen=True)
class TrainingResult:
    """A trained network with the report of its best validation and the figures of the run."""

    network: torch.nn.Module
    card: ModelCard
    best: Report
    steps: int
    seconds: float
    samples_per_second: float


def train_network(
    name: str,
    network_settings: dict,
    dataset: Dataset,
    settings: TrainingSettings,
    progress: Callable[[Report], None] | None = None,
) -> TrainingResult:
    """Train a network by its name in the registry.

    Parameters
    ----------
    progress
        Called with a `Report` at every validation.

    Raises
    ------
    ValueError
        If the network, a setting or the equation is unknown.
    TrainingDivergedError
        If the loss becomes NaN or infinite.
    """
    start = time.perf_counter()
    torch.manual_seed(settings.seed)
    network = build_network(name, network_settings, dataset.subdomain)
    trainer = Trainer(network, equation(dataset.pde), dataset, settings, start)
    best = trainer.run(progress)
    seconds = time.perf_counter() - start
    card = _card(name, network, dataset, settings, best, trainer.step, seconds)
    rate = trainer.step * trainer.batch_size / seconds
    return TrainingResult(network, card, best, trainer.step, seconds, rate)


class Trainer:
    """One training run: samples, optimiser, schedule and the best weights so far.

    Parameters
    ----------
    start
        `time.perf_counter` at which the time limit began to run.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        equation: Equation,
        dataset: Dataset,
        settings: TrainingSettings,
        start: float,
    ):
        self.network = network
        self.equation = equation
        self.settings = settings
        self.start = start
        lifting = Lifting(equation, dataset.subdomain, settings.lifting_degree)
        held_out = dataset.held_out
        self.training, self.validation, self.windows = (
            lift_samples(lifting, boundary, solution)
            for boundary, solution in (
                (dataset.boundary[:-held_out], dataset.solution[:-held_out]),
                (dataset.boundary[-held_out:], dataset.solution[-held_out:]),
                (dataset.window_boundary, dataset.window_solution),
            )
        )
        interior = unit_points(dataset.subdomain.interior, dataset.subdomain)
        self.points = torch.as_tensor(interior, dtype=torch.float32)
        self.batch_size = min(settings.batch_size, len(self.training))
        self.steps = settings.epochs * (len(self.training) // self.batch_size)
        self.step = 0
        self.optimiser = build_optimiser(network.parameters(), settings)
        self._all_nodes = torch.arange(len(self.points))
        # A network that is not linear is evaluated at each pair of a perimeter and a point: between
        # the first and the last validation, a fixed choice of nodes is enough.
        few = torch.randperm(len(self.points))[:_SAMPLED_NODES]
        self._sampled_nodes = self._all_nodes if network.linear else few
        self._pools = self._node_pools()
        self._validation_seconds = 0.0

    @property
    def progress(self) -> float:
        """Fraction of the training that is done, by its steps or by its time limit."""
        done = self.step / self.steps
        if self.settings.max_seconds:
            left = 0.99 * self.settings.max_seconds - 2.0 * self._validation_seconds
            done = max(done, (time.perf_counter() - self.start) / max(left, 1e-9))
        return min(done, 1.0)

    def run(self, progress: Callable[[Report], None] | None) -> Report:
        """Train to the end, put the best weights into the network and return their report."""
        show = progress or (lambda report: None)
        best = self.validate(float("nan"), self._all_nodes)
        weights = copy.deepcopy(self.network.state_dict())
        show(best)
        next_validation = 1 / self.settings.validations
        while (done := self.progress) < 1:
            loss = self.take_step(done)
            if done >= next_validation or self.progress >= 1:
                next_validation = done + 1 / self.settings.validations
                report = self.validate(loss, self._sampled_nodes)
                if _error(report) < _error(best):
                    best, weights = report, copy.deepcopy(self.network.state_dict())
                show(report)
        self.network.load_state_dict(weights)
        if len(self._sampled_nodes) < len(self._all_nodes):
            full = self.validate(best.loss, self._all_nodes)
            best = replace(best, validation_mse=full.validation_mse, window_mse=full.window_mse)
        logger.info("trained %d steps, validation MSE %.2e", self.step, best.validation_mse)
        return best

    def take_step(self, done: float) -> float:
        """Take one step at the fraction ``done`` of the training, and return its loss."""
        factor = learning_rate_factor(done, self.settings.warmup)
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.lr * factor
        g, target, points = self._batch(self.training)
        self.optimiser.zero_grad(set_to_none=True)
        loss = data_loss(self.network, g, points, target)
        loss.backward()
        if self.settings.pde_weight:
            collocation = 2 * torch.rand(self.settings.collocation, 2) - 1
            residual = self.settings.pde_weight * pde_loss(
                self.network, self.equation, g, collocation
            )
            residual.backward()
            loss = loss.detach() + residual.detach()
        value = loss.item()
        if not np.isfinite(value):
            raise TrainingDivergedError(
                f"the loss is {value} at step {self.step + 1} of {self.steps}; lower --lr "
                f"(now {self.settings.lr:g})"
            )
        self.optimiser.step()
        self.step += 1
        return value

    def validate(self, loss: float, nodes: torch.Tensor) -> Report:
        """Compute the errors on held-out samples and on windows at some of the interior nodes."""
        before = time.perf_counter()
        errors = [
            mean_squared_error(self.network, samples, self.points, nodes)
            for samples in (self.validation, self.windows)
        ]
        now = time.perf_counter()
        self._validation_seconds = max(self._validation_seconds, now - before)
        return Report(self.step, self.progress, now - self.start, loss, *errors)

    def _node_pools(self) -> list[torch.Tensor]:
        """Return the sets of nodes from which the data points of a step are drawn.

        A symmetric network that is not linear embeds a perimeter once per symmetry that occurs
        among the points, so all points of a step come from one triangle, another in each step.
        """
        if self.network.linear or self.network.symmetry is None:
            return [self._all_nodes]
        element = self.network.symmetry.fold(self.points, merge=False).element
        return [torch.nonzero(element == e)[:, 0] for e in element.unique()]

    def _batch(self, samples: LiftedSamples) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Draw remainders ``(B, P)``, targets ``(B, Q)`` and points ``(Q, 2)`` of one step."""
        position = self.step % (len(samples) // self.batch_size)
        if position == 0:
            self._order = torch.randperm(len(samples))
        chosen = self._order[position * self.batch_size :][: self.batch_size]
        g, target, points = samples.remainder[chosen], samples.target[chosen], self.points
        if 0 < self.settings.points < len(points):
            pool = self._pools[int(torch.randint(len(self._pools), ()))]
            nodes = pool[torch.randperm(len(pool))[: self.settings.points]]
            target, points = target[:, nodes], points[nodes]
        return g, target, points


def _error(report: Report) -> float:
    """Return the number by which the best weights are chosen."""
    return report.validation_mse + report.window_mse


def _card(
    name: str,
    network: torch.nn.Module,
    dataset: Dataset,
    settings: TrainingSettings,
    best: Report,
    steps: int,
    seconds: float,
) -> ModelCard:
    """Write down what the network is, was trained on, and reaches."""
    ranges = zip(dataset.hyperparameter_names, dataset.hyperparameters.T, strict=True)
    return ModelCard(
        pde=dataset.pde,
        cells=dataset.subdomain.cells,
        size=dataset.subdomain.size,
        network=name,
        settings=asdict(network.settings),
        lifting_degree=settings.lifting_degree,
        boundary_range=[float(dataset.boundary.min()), float(dataset.boundary.max())],
        hyperparameter_ranges={key: [float(v.min()), float(v.max())] for key, v in ranges},
        validation={"mse": best.validation_mse, "window_mse": best.window_mse},
        training={**asdict(settings), "steps": steps, "seconds": round(seconds, 1)},
        dataset_hash=dataset.content_hash,
    )
