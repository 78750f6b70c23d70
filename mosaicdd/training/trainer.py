"""The training loop (section 3.3 of the paper), on any number of ranks.

A step is Algorithm 1: the gradient of the data loss, then that of the PDE loss on other points
added to it, then one reduction over the ranks. Every rank draws the same global batch and takes its
share of it. The weights with the least validation error are kept.
"""

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from mosaicdd.parallel.launcher import Watch
from mosaicdd.training.equation_lesson import EquationLesson
from mosaicdd.training.memory import hold_freed_memory, samples_per_pass
from mosaicdd.training.objective import LOSSES, Objective, ParallelObjective, RankGroup
from mosaicdd.training.optimisers import build_optimiser, learning_rate_factor, require_finite_step
from mosaicdd.training.reports import Report
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings


class Trainer:
    """One training run: samples, optimiser, schedule and the best weights so far.

    Parameters
    ----------
    lesson
        Of this rank; its network is equal on all ranks.
    start
        `time.perf_counter` at which the time limit began to run.
    """

    def __init__(
        self,
        lesson: EquationLesson,
        settings: TrainingSettings,
        start: float,
        ranks: RankGroup | None = None,
        execution: ExecutionSettings | None = None,
    ):
        self.ranks = ranks or RankGroup()
        self.lesson, self.settings = lesson, settings
        self.execution = execution or ExecutionSettings()
        self.start = start
        self.execution.require_ranks(self.ranks.size, settings, lesson.batches.samples)
        if self.execution.recompute:
            lesson.network.recompute = True
        precise = "high" if settings.precision == "tf32" else "highest"
        torch.set_float32_matmul_precision(precise)
        self.steps = settings.epochs * lesson.batches.per_epoch
        self.step = 0
        self.micro_batch = self.execution.micro_batch or self._samples_per_pass()
        objective = Objective(lesson.network, lesson.loss)
        self.parallel = ParallelObjective(objective, self.ranks, self.execution)
        self.optimiser = build_optimiser(
            objective.weights(), settings, sharded=self.execution.sharding == "zero1"
        )
        self._validation_seconds = 0.0
        self._elapsed = 0.0  # of rank 0, as all ranks heard last
        self._before = 0.0  # seconds of the runs that this one continues
        self._losses = dict.fromkeys(LOSSES, math.nan)
        self._next_validation = 1 / settings.validations
        self._best: Report | None = None
        self.best_weights: dict = {}

    @property
    def best(self) -> Report:
        """The report of the best weights so far."""
        if self._best is None:
            raise RuntimeError("nothing has been validated yet: run the training first")
        return self._best

    @property
    def progress(self) -> float:
        """Fraction of the training that is done, by its steps or by its time limit."""
        done = self.step / self.steps
        if self.settings.max_seconds:
            left = 0.99 * self.settings.max_seconds - 2.0 * self._validation_seconds
            done = max(done, self._elapsed / max(left, 1e-9))
        return min(done, 1.0)

    def run(self, progress: Callable[[Report], None] | None, watch: Watch | None = None) -> bool:
        """Train to the end and put the best weights into the network.

        Return whether the end was reached; otherwise the watch interrupted the training, after a checkpoint was saved.
        """
        show = progress or (lambda report: None)
        watch = watch or Watch()
        if self._best is None:
            self.keep_if_best(self.validate(everywhere=True))
            show(self.best)
        while (done := self.progress) < 1:
            called = self.take_step(done, watch.calls())
            if done >= self._next_validation or self.progress >= 1:
                self._next_validation = done + 1 / self.settings.validations
                report = self.validate()
                self.keep_if_best(report)
                show(report)
            stop, save = (count > 0 for count in called)
            if watch.save is not None and (stop or save):
                self._save(watch.save)
                watch.saved()
            if stop and self.progress < 1:
                return False
        self._finish()
        return True

    def take_step(self, done: float, calls: Sequence[float] = (0.0, 0.0)) -> list[float]:
        """Take one step at the fraction ``done`` of the training.

        A rank's ``calls`` are what it asks for: stop, save; returned is how many asked for each.
        """
        settings = self.settings
        factor = learning_rate_factor(done, settings.scaled_warmup, settings.decay_exponent)
        for group in self.optimiser.param_groups:
            group["lr"] = settings.scaled_lr * factor
        passes = self.lesson.draw(self.step, self.micro_batch)
        seconds = self.seconds if self.ranks.is_root else 0.0
        self._losses, totals = self.parallel.backward(passes, [seconds, *calls])
        self._elapsed, *called = totals
        norm, loss = self._clip(), sum(self._losses.values())
        require_finite_step(loss, norm, self.step + 1, self.steps, settings.lr)
        self.optimiser.step()
        self.step += 1
        return called

    def validate(self, everywhere: bool = False) -> Report:
        """Compute the errors on held-out samples and on windows, at some of the nodes or at all."""
        before = time.perf_counter()
        with self.parallel.whole_weights():
            sums, counts = self.lesson.squared_errors(everywhere=everywhere)
        now = time.perf_counter()
        clocks = [now - before, self.seconds] if self.ranks.is_root else [0.0, 0.0]
        *sums, took, elapsed = self.ranks.sum([*sums, *clocks])
        self._elapsed = elapsed
        self._validation_seconds = max(self._validation_seconds, took)
        validation, windows = (total / count for total, count in zip(sums, counts, strict=True))
        return Report(
            step=self.step,
            progress=self.progress,
            seconds=elapsed,
            **self._losses,
            lr=self.optimiser.param_groups[0]["lr"],
            samples_per_second=self.step * self.lesson.batches.size / max(elapsed, 1e-9),
            validation_mse=validation,
            window_mse=windows,
        )

    def state(self) -> dict:
        """Return all that a continued run needs; on rank 0, where others may return less."""
        return {
            "step": self.step,
            "seconds": self._elapsed,
            "validation_seconds": self._validation_seconds,
            "next_validation": self._next_validation,
            "signals": self._losses,
            "best": asdict(self.best),
            "best_weights": self.best_weights,
            "weights": self.parallel.weights_state(),
            "optimiser": self.parallel.optimiser_state(self.optimiser),
        }

    def load_state(self, state: dict) -> None:
        """Continue from a state, whatever the number of ranks that it was made on."""
        self.step = state["step"]
        self._before = self._elapsed = state["seconds"]
        self._validation_seconds = state["validation_seconds"]
        self._next_validation = state["next_validation"]
        self._losses = {name: state["signals"][name] for name in LOSSES}
        self._best = Report(**state["best"])
        self.best_weights = state["best_weights"]
        self.parallel.load_weights_state(state["weights"])
        self.parallel.load_optimiser_state(self.optimiser, state["optimiser"])

    def _finish(self) -> None:
        """Put the best weights into the network, and their errors at all nodes into the report."""
        self.parallel.load_weights_state(self.best_weights)
        if self.lesson.samples_nodes:
            errors: Any = self.validate(everywhere=True).figures
            self._best = replace(self.best, **errors)

    def keep_if_best(self, report: Report) -> None:
        """Keep the weights of now if a report of them is better than those before."""
        if self._best is None or report.merit < self._best.merit:
            self._best = report
            self.best_weights = copy.deepcopy(self.parallel.weights_state())

    def _save(self, save: Callable[[dict, int], None]) -> None:
        """Write a checkpoint on rank 0; if that fails, all ranks raise."""
        state = self.state()
        self.ranks.on_root(lambda: save(state, self.step))

    def _clip(self) -> float:
        """Clip the gradient and return its norm before; the same number on all ranks."""
        greatest = self.settings.clip or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.parallel.objective.weights(), greatest)
        return self.parallel.whole(norm).item()

    @property
    def seconds(self) -> float:
        """Time since the start, that of the runs which this one continues included."""
        return self._before + time.perf_counter() - self.start

    def _samples_per_pass(self) -> int:
        """Return the samples of a pass where nobody says: all on a GPU, few on a processor."""
        if self.ranks.device.type != "cpu":
            return 0
        hold_freed_memory()
        mine = samples_per_pass(self.lesson.loss, self.lesson.draw(0, 0))
        # All ranks make passes of the same size, whatever their shares.
        return int(self.ranks.sum([float(mine) if self.ranks.is_root else 0.0])[0])
