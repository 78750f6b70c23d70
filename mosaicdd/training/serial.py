"""Training on one rank, on the processor: steps, validations, the best weights so far.

What is learned is a `Lesson`; how, is the same for all of them.
"""

import copy
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from mosaicdd.local_solvers.models.weights import extract_weights
from mosaicdd.parallel.watch import Watch
from mosaicdd.settings import meant
from mosaicdd.storage.atomic import require_writable
from mosaicdd.storage.metrics_file import MetricsFile
from mosaicdd.storage.model_file import ModelCard, write_model
from mosaicdd.training.checkpoints import Checkpoints
from mosaicdd.training.optimisers import (
    TrainingDivergedError,
    build_optimiser,
    learning_rate_factor,
    require_finite_step,
)
from mosaicdd.training.seeded import seeded
from mosaicdd.training.settings import TrainingSettings


@dataclass(frozen=True)
class SerialReport:
    """The state of such a training at a validation.

    Parameters
    ----------
    step, progress, seconds
        Steps done, fraction of the training done, and time since its start.
    loss, lr
        Of the last step.
    error
        On held-out data; the lesson says which.
    plain
        The same without the network.
    """

    step: int
    progress: float
    seconds: float
    loss: float
    lr: float
    error: float
    plain: float


@dataclass(frozen=True)
class LessonResult:
    """A network that was taught, with the report of its best weights.

    Parameters
    ----------
    card
        What the model file says of it; None of a training that was interrupted.
    """

    network: torch.nn.Module
    card: ModelCard | None
    best: SerialReport
    lesson: "type[Lesson]"

    @property
    def finished(self) -> bool:
        """Whether the training reached its end; else the network is not the best one."""
        return self.card is not None

    @property
    def figures(self) -> dict:
        """What a script wants to know, as plain values."""
        best = self.best
        figures = {"error": best.error, self.lesson.plain: best.plain}
        return figures | {"steps": best.step, "seconds": round(best.seconds, 1)}


class Lesson(ABC):
    """Data, a network, and what it is to learn.

    Attributes
    ----------
    name, settings_type
        Of the kind of network, and what it is made by.
    plain
        A word for what stands in its place without it.
    network
        The network itself.
    learned
        Number of the data, from the first, that it learns from; the others are held out.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type]
    plain: ClassVar[str]
    network: torch.nn.Module
    learned: int

    @classmethod
    @abstractmethod
    def read(cls, data: Any) -> Any:
        """Return a dataset, read if ``data`` is a path; it has a ``content_hash``."""

    @classmethod
    def require(cls, data: Any, *, labels: bool) -> None:
        """Check that it can learn from a dataset, from solutions or without.

        Raises
        ------
        ValueError
            If it cannot.
        """
        if not labels:
            raise ValueError(f"the network {cls.name} learns from solutions alone: leave labels on")

    @abstractmethod
    def __init__(self, data: Any, how: Any): ...

    def forget_labels(self) -> None:
        """Learn from the equation alone from now on, where `require` allows it."""
        raise NotImplementedError

    @abstractmethod
    def loss(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return the loss on some of the data, given by their numbers."""

    @abstractmethod
    def errors(self) -> tuple[float, float]:
        """Return the error on the held-out data, and that without the network."""

    @abstractmethod
    def card(self, best: SerialReport, training: dict) -> ModelCard:
        """Write down what the network is, was trained on, and reaches."""


class SerialTraining:
    """A training whose input has been checked; see `training.loop.Training`.

    Parameters
    ----------
    data
        A path, or a dataset of the lesson's.

    Raises
    ------
    ValueError, OSError
        If the data or a setting is not sound, or the model file cannot be written.
    """

    def __init__(
        self,
        lesson: type[Lesson],
        data: Any,
        output: str | os.PathLike,
        settings: TrainingSettings | None = None,
        network_settings: dict | None = None,
    ):
        self.lesson = lesson
        self.settings = settings or TrainingSettings()
        self.output = Path(output)
        require_writable(output)
        known = set(asdict(lesson.settings_type()))
        if unknown := sorted(set(network_settings or {}) - known):
            raise ValueError(
                f"network {lesson.name!r} has no setting {unknown[0]!r}{meant(unknown[0], known)}; known: "
                f"{', '.join(sorted(known))}"
            )
        self._how = lesson.settings_type(**(network_settings or {}))
        self._data = lesson.read(data)
        lesson.require(self._data, labels=self.settings.labels)
        identity = {"network": lesson.name, "network settings": asdict(self._how)}
        identity |= asdict(self.settings) | {"dataset": self._data.content_hash}
        self.checkpoints = Checkpoints(self.output, identity)
        self._state: dict | None = None

    @property
    def metrics_path(self) -> Path:
        """Where the metrics are written."""
        return Path(f"{self.output}.metrics.jsonl")

    def resume(self) -> None:
        """Read the newest checkpoint, to continue from it; errors are those of `Checkpoints.read`."""
        self._state = self.checkpoints.read()

    def run(
        self,
        progress: Callable[[SerialReport], None] | None = None,
        watch: Watch | None = None,
    ) -> LessonResult:
        """Train, and write the model with the least error, unless the watch ends it before.

        Raises
        ------
        TrainingDivergedError
            If the loss or the gradient becomes NaN or infinite.
        OSError
            If a file cannot be written.
        """
        with seeded(self.settings.seed):
            return self._trained(progress, watch or Watch())

    def _trained(
        self, progress: Callable[[SerialReport], None] | None, watch: Watch
    ) -> LessonResult:
        state = self._state
        lesson = self.lesson(self._data, self._how)
        if not self.settings.labels:
            lesson.forget_labels()
        trainer = _Trainer(lesson, self.settings)
        if state is not None:
            trainer.load_state(state)
        metrics = MetricsFile(self.metrics_path, None if state is None else state["step"])

        def report(now: SerialReport) -> None:
            metrics.append(asdict(now))
            if progress:
                progress(now)

        if not trainer.run(report, watch):
            return LessonResult(lesson.network, None, trainer.best, self.lesson)
        card = trainer.card()
        write_model(self.output, card, extract_weights(lesson.network))
        self.checkpoints.remove()
        return LessonResult(lesson.network, card, trainer.best, self.lesson)


class _Trainer:
    """The loop."""

    def __init__(self, lesson: Lesson, settings: TrainingSettings):
        self._lesson, self._settings = lesson, settings
        self._network = lesson.network
        self._optimiser = build_optimiser(self._network.parameters(), settings)
        self._steps = settings.epochs * math.ceil(lesson.learned / settings.batch_size)
        self._before = 0.0
        self._begun = time.perf_counter()
        self._step, self._loss, self._next = 0, math.nan, 0.0
        self._best: SerialReport | None = None
        self._best_weights: dict = {}

    @property
    def best(self) -> SerialReport:
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

    def run(self, report: Callable[[SerialReport], None], watch: Watch) -> bool:
        """Train to the end, or until the watch calls; return whether the end was reached."""
        try:
            return self._run(report, watch)
        except torch.linalg.LinAlgError as error:  # of a factorisation of what the network gives
            raise TrainingDivergedError(
                f"{error} at step {self._step + 1} of {self._steps}; lower lr (now {self._settings.lr:g})"
            ) from error

    def _run(self, report: Callable[[SerialReport], None], watch: Watch) -> bool:
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
        self._network.load_state_dict(self._best_weights)
        return True

    def _take_step(self, done: float) -> None:
        settings = self._settings
        factor = learning_rate_factor(done, settings.scaled_warmup, settings.decay_exponent)
        for group in self._optimiser.param_groups:
            group["lr"] = settings.scaled_lr * factor
        rng = np.random.default_rng([settings.seed, self._step])
        chosen = torch.from_numpy(rng.integers(0, self._lesson.learned, settings.batch_size))
        loss = self._lesson.loss(chosen)
        self._optimiser.zero_grad()
        loss.backward()
        greatest = settings.clip or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self._network.parameters(), greatest)
        self._loss = loss.item()
        require_finite_step(self._loss, norm.item(), self._step + 1, self._steps, settings.lr)
        self._optimiser.step()
        self._step += 1

    def _validate(self, report: Callable[[SerialReport], None]) -> None:
        error, plain = self._lesson.errors()
        now = SerialReport(
            step=self._step,
            progress=self._progress,
            seconds=self._seconds,
            loss=self._loss,
            lr=self._optimiser.param_groups[0]["lr"],
            error=error,
            plain=plain,
        )
        if self._best is None or now.error < self._best.error:
            self._best = now
            self._best_weights = copy.deepcopy(self._network.state_dict())
        report(now)

    def card(self) -> ModelCard:
        """Write down what the network is, was trained on, and reaches."""
        how = {"steps": self._step, "seconds": round(self._seconds, 1), "ranks": 1}
        return self._lesson.card(self.best, {**asdict(self._settings), **how})

    def state(self) -> dict:
        """Return all that a continued run needs."""
        return {
            "step": self._step,
            "seconds": self._seconds,
            "next": self._next,
            "best": asdict(self.best),
            "best_weights": self._best_weights,
            "weights": self._network.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }

    def load_state(self, state: dict) -> None:
        """Continue from a state."""
        self._step, self._next, self._before = state["step"], state["next"], state["seconds"]
        self._best = SerialReport(**state["best"])
        self._best_weights = state["best_weights"]
        self._network.load_state_dict(state["weights"])
        self._optimiser.load_state_dict(state["optimiser"])
