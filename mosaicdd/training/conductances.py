"""Training of a network of conductances through the coarse solutions that they lead to.

In every medium of a batch the coarse equation of the network's conductances is solved, for all its problems,
and compared with the fine solutions at the coarse nodes. The loss is the mean logarithm of the relative
errors, so a tenth less is worth the same in every medium, whatever its contrast.

Shape letters: ``B`` media, ``q`` problems, ``N`` coarse nodes.
"""

import copy
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.loading import extract_weights
from mosaicdd.local_solvers.networks.conductances import (
    CONDUCTANCES,
    ROUGHNESS,
    ConductanceNetwork,
    ConductanceSettings,
    roughness,
)
from mosaicdd.local_solvers.upscaling import MARGIN, RATIO
from mosaicdd.parallel.watch import Watch
from mosaicdd.storage.atomic import require_writable
from mosaicdd.storage.media_file import MediaDataset, read_media
from mosaicdd.storage.metrics_file import MetricsFile
from mosaicdd.storage.model_file import ModelCard, write_model
from mosaicdd.training.checkpoints import Checkpoints
from mosaicdd.training.coarse_equation import (
    CoarseSolve,
    coarse_conductances,
    inner_nodes,
    series_mean,
)
from mosaicdd.training.optimisers import build_optimiser, learning_rate_factor
from mosaicdd.training.settings import TrainingSettings

logger = logging.getLogger(__name__)

_FLOOR = 1e-5  # relative error that is as good as none
_ACCURATE = 0.05  # error up to which held-out media of a roughness are within the model's range
_ALIKE = 20  # of the held-out media that are compared: a share of them, of about the same roughness
_BATCH = 100  # media of a validation's pass


@dataclass(frozen=True)
class ConductanceReport:
    """The state of such a training at a validation.

    Parameters
    ----------
    step, progress, seconds
        Steps done, fraction of the training done, and time since its start.
    loss, lr
        Of the last step.
    error
        Geometric mean of the relative errors in held-out media.
    averaged
        The same of plain averages.
    """

    step: int
    progress: float
    seconds: float
    loss: float
    lr: float
    error: float
    averaged: float

    @property
    def text(self) -> str:
        """Where it stands, in one line."""
        return f"step {self.step}, error {self.error:.2e} (averaged {self.averaged:.2e})"


class ConductanceTraining:
    """A training whose input has been checked; see `training.loop.Training`.

    Raises
    ------
    ValueError, OSError
        If the data or a setting is not sound, or the model file cannot be written.
    """

    def __init__(
        self,
        data: str | os.PathLike | MediaDataset,
        output: str | os.PathLike,
        settings: TrainingSettings | None = None,
        network_settings: dict | None = None,
    ):
        self.settings = settings or TrainingSettings()
        self.output = Path(output)
        require_writable(output)
        known = set(asdict(ConductanceSettings()))
        if unknown := sorted(set(network_settings or {}) - known):
            raise ValueError(
                f"network {CONDUCTANCES!r} has no setting {unknown[0]!r}; known: {', '.join(sorted(known))}"
            )
        self._network_settings = ConductanceSettings(**(network_settings or {}))
        self.media = data if isinstance(data, MediaDataset) else read_media(data)
        identity = {"network": CONDUCTANCES, "network settings": asdict(self._network_settings)}
        identity |= asdict(self.settings) | {"dataset": self.media.content_hash}
        self.checkpoints = Checkpoints(self.output, identity)

    @property
    def metrics_path(self) -> Path:
        """Where the metrics are written."""
        return Path(f"{self.output}.metrics.jsonl")

    def run(
        self,
        progress: Callable[[ConductanceReport], None] | None = None,
        watch: Watch | None = None,
        *,
        resume: bool = False,
    ) -> ConductanceReport | None:
        """Train, and write the model with the least error; None if the watch ended it before."""
        state = self.checkpoints.read() if resume else None
        trainer = _Trainer(self.media, self.settings, self._network_settings)
        if state is not None:
            trainer.load_state(state)
        metrics = MetricsFile(self.metrics_path, None if state is None else state["step"])

        def report(now: ConductanceReport) -> None:
            metrics.append(asdict(now))
            if progress:
                progress(now)

        if not trainer.run(report, watch or Watch()):
            return None
        write_model(self.output, trainer.card(), extract_weights(trainer.network))
        self.checkpoints.remove()
        return trainer.best


class _Trainer:
    """The loop: steps, validations, the best weights so far."""

    def __init__(self, media: MediaDataset, settings: TrainingSettings, how: ConductanceSettings):
        torch.manual_seed(settings.seed)
        self._media, self._settings = media, settings
        self._network_settings = how
        self.network = ConductanceNetwork(how)
        self._arrays = [
            torch.from_numpy(one) for one in (media.logarithm, media.solution, media.source)
        ]
        self._learned = len(media.kind) - media.held_out
        self._optimiser = build_optimiser(self.network.parameters(), settings)
        self._steps = settings.epochs * math.ceil(self._learned / settings.batch_size)
        self._before = 0.0
        self._begun = time.perf_counter()
        self._step, self._loss, self._next = 0, math.nan, 0.0
        self._averages = self._held_out(None)
        self._best: ConductanceReport | None = None
        self._best_weights: dict = {}

    @property
    def best(self) -> ConductanceReport:
        """The report of the best weights."""
        if self._best is None:
            raise RuntimeError("nothing has been validated yet: run the training first")
        return self._best

    @property
    def _seconds(self) -> float:
        return self._before + time.perf_counter() - self._begun

    @property
    def _progress(self) -> float:
        done = self._step / self._steps
        if self._settings.max_seconds:
            done = max(done, self._seconds / self._settings.max_seconds)
        return min(done, 1.0)

    def run(self, report: Callable[[ConductanceReport], None], watch: Watch) -> bool:
        """Train to the end, or until the watch calls; return whether the end was reached."""
        while (done := self._progress) < 1:
            if done >= self._next:
                self._validate(report)
                self._next = done + 1 / self._settings.validations
            self._take_step(done)
            stop, save = watch.calls()
            if watch.save is not None and (stop or save):
                watch.save(self.state(), self._step)
                watch.saved()
            if stop:
                return False
        self._validate(report)
        self.network.load_state_dict(self._best_weights)
        return True

    def _take_step(self, done: float) -> None:
        settings = self._settings
        factor = learning_rate_factor(done, settings.scaled_warmup, settings.decay_exponent)
        for group in self._optimiser.param_groups:
            group["lr"] = settings.scaled_lr * factor
        rng = np.random.default_rng([settings.seed, self._step])
        chosen = torch.from_numpy(rng.integers(0, self._learned, settings.batch_size))
        loss = (self._errors(self.network, chosen) + _FLOOR).log().mean()
        self._optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip or math.inf)
        self._optimiser.step()
        self._step += 1
        self._loss = loss.item()

    def _errors(self, network: ConductanceNetwork | None, which: torch.Tensor) -> torch.Tensor:
        """Return the relative errors in some media, ``(B, q)``."""
        logarithm, solution, source = (one[which] for one in self._arrays)
        values, ends = coarse_conductances(network, logarithm)
        values = values.double()
        # Scaled, so that the matrix is of order 1.
        scale = values.detach().mean(dim=1, keepdim=True)
        b = source.double().flatten(2) / scale.exp()[..., None]
        truth = solution.double().flatten(2)
        u = CoarseSolve.apply((values - scale).exp(), ends, truth, b)
        inner, _ = inner_nodes(truth.shape[2])
        truth, wrong = truth[:, :, inner], (u - truth)[:, :, inner]
        size = truth - truth.mean(dim=2, keepdim=True)
        return (wrong.square().mean(dim=2) / size.square().mean(dim=2).clamp(min=1e-30)).sqrt()

    @torch.no_grad()
    def _held_out(self, network: ConductanceNetwork | None) -> torch.Tensor:
        """Return the mean logarithms of the errors in each held-out medium."""
        every = torch.arange(self._learned, len(self._media.kind)).split(_BATCH)
        errors = torch.cat([self._errors(network, part) for part in every])
        return (errors + _FLOOR).log().mean(dim=1)

    def _validate(self, report: Callable[[ConductanceReport], None]) -> None:
        errors = self._held_out(self.network)
        now = ConductanceReport(
            step=self._step,
            progress=self._progress,
            seconds=self._seconds,
            loss=self._loss,
            lr=self._optimiser.param_groups[0]["lr"],
            error=float(errors.mean().exp()),
            averaged=float(self._averages.mean().exp()),
        )
        if self._best is None or now.error < self._best.error:
            self._best = now
            self._best_weights = copy.deepcopy(self.network.state_dict())
        report(now)

    def card(self) -> ModelCard:
        """Write down what the network is, was trained on, and reaches."""
        media, best = self._media, self.best
        with torch.no_grad():
            errors = self._held_out(self.network)
        kinds = np.array(media.kind[self._learned :])
        validation = {"error": best.error, "averaged": best.averaged}
        for name in sorted(set(kinds)):
            of_kind = torch.from_numpy(kinds == name)
            validation[f"{name}"] = float(errors[of_kind].mean().exp())
            validation[f"{name}, averaged"] = float(self._averages[of_kind].mean().exp())
        how = {"steps": self._step, "seconds": round(self._seconds, 1), "ranks": 1}
        side = RATIO * (media.solution.shape[2] - 1)
        return ModelCard(
            pde=media.pde,
            cells=side,
            size=Subdomain().spacing * side,
            network=CONDUCTANCES,
            settings=asdict(self._network_settings),
            lifting_degree=0,
            boundary_range=[-1.0, 1.0],
            ranges={ROUGHNESS: [0.0, self._roughest(errors)]},
            validation=validation,
            training={**asdict(self._settings), **how},
            dataset_hash=media.content_hash,
        )

    def _roughest(self, errors: torch.Tensor) -> float:
        """Return how rough a medium may be: up to there, held-out media of all roughnesses are accurate.

        Parameters
        ----------
        errors
            The mean logarithm of each held-out medium's.
        """
        cut = self._arrays[0][self._learned :, MARGIN:-MARGIN, MARGIN:-MARGIN]
        patches = roughness(series_mean(cut, 2), series_mean(cut, 1)).flatten(1)
        rough, order = patches.square().mean(dim=1).sqrt().sort()
        parts = zip(rough.chunk(_ALIKE), errors[order].chunk(_ALIKE), strict=True)
        bound = float(rough[0])
        for part, wrong in parts:
            if wrong.mean() > math.log(_ACCURATE):
                break
            bound = float(part[-1])
        return float(f"{bound:.2g}")

    def state(self) -> dict:
        """Return all that a continued run needs."""
        return {
            "step": self._step,
            "seconds": self._seconds,
            "next": self._next,
            "best": asdict(self.best),
            "best_weights": self._best_weights,
            "weights": self.network.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }

    def load_state(self, state: dict) -> None:
        """Continue from a state."""
        self._step, self._next, self._before = state["step"], state["next"], state["seconds"]
        self._best = ConductanceReport(**state["best"])
        self._best_weights = state["best_weights"]
        self.network.load_state_dict(state["weights"])
        self._optimiser.load_state_dict(state["optimiser"])
