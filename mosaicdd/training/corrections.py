"""Training of a network of corrections on squares of a nonlinear equation.

The labels are what the linear equation's solutions lack on the centre lines. The loss is their mean square over
that of the data, so that small data are worth as much as large ones.
"""

import copy
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from mosaicdd.local_solvers.loading import extract_weights
from mosaicdd.local_solvers.networks.correction import (
    CORRECTION,
    ROUGHNESS,
    SOURCE,
    CorrectionNetwork,
    CorrectionSettings,
    correct,
    roughness,
)
from mosaicdd.local_solvers.square_newton import SquareNewton
from mosaicdd.parallel.watch import Watch
from mosaicdd.problems.equations import any_equation
from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.storage.atomic import require_writable
from mosaicdd.storage.metrics_file import MetricsFile
from mosaicdd.storage.model_file import ModelCard, write_model
from mosaicdd.storage.square_file import SquareDataset, read_squares
from mosaicdd.training.checkpoints import Checkpoints
from mosaicdd.training.optimisers import build_optimiser, learning_rate_factor
from mosaicdd.training.settings import TrainingSettings
from mosaicdd.training.squares import linear_reaction, place, require_learnable

_BATCH = 2048  # squares of a pass without gradients
_RANGE = 0.999  # quantile of the training data's roughness that the model is for


@dataclass(frozen=True)
class CorrectionReport:
    """The state of such a training at a validation.

    Parameters
    ----------
    step, progress, seconds
        Steps done, fraction of the training done, and time since its start.
    loss, lr
        Of the last step.
    error
        On held-out squares, the root mean square error over that of the solutions.
    linear
        The same of the linear equation's solutions.
    """

    step: int
    progress: float
    seconds: float
    loss: float
    lr: float
    error: float
    linear: float

    @property
    def text(self) -> str:
        """Where it stands, in one line."""
        return f"step {self.step}, error {self.error:.2e} (linear {self.linear:.2e})"


class CorrectionSamples:
    """What a network of corrections sees of squares, and what it is to say.

    Attributes
    ----------
    inputs, sigma
        ``(n, P + K)`` and ``(n, 1)``, see `CorrectionNetwork`.
    labels, values
        Corrections and solutions on the centre lines, ``(n, Q)``.
    """

    def __init__(self, squares: SquareDataset, network: CorrectionNetwork):
        pde = any_equation(squares.pde)
        if not isinstance(pde, NonlinearEquation):
            raise ValueError(f"squares are of nonlinear equations, {pde.name} is linear")  # noqa: TRY004
        require_learnable(pde)
        m, h = squares.subdomain.cells, squares.subdomain.spacing
        newton = SquareNewton(pde.operator({}), m, h, torch.device("cpu"))
        reaction = linear_reaction(pde, squares.parameters)
        columns: list[list[torch.Tensor]] = [[], [], []]
        for start in range(0, len(reaction), _BATCH):
            some = slice(start, start + _BATCH)
            g = torch.from_numpy(squares.boundary[some]).double()
            f = torch.from_numpy(squares.source[some]).double()[:, 1:-1, 1:-1]
            w = torch.zeros(len(g), m + 1, m + 1, dtype=torch.float64)
            newton.linear(w, f, reaction[some])
            inputs = torch.cat([g, w[:, *network.points.T]], dim=1)
            place(g, w)
            newton.linear(w, f, reaction[some])
            at = network.outputs.T
            values = torch.from_numpy(squares.solution[some][:, *at]).double()
            for column, one in zip(columns, (inputs, values - w[:, *at], values), strict=True):
                column.append(one.float())
        self.inputs, self.labels, self.values = (torch.cat(column) for column in columns)
        self.sigma = (reaction * squares.subdomain.size**2).float()[:, None]
        self.size = self.inputs.square().mean(dim=1, keepdim=True).sqrt()
        # Errors of all subdomains add up the further, the less reaction there is to damp them.
        self.weight = (1.25 + self.sigma) / (0.1 + self.sigma) / self.size


class CorrectionTraining:
    """A training whose input has been checked; see `training.loop.Training`.

    Raises
    ------
    ValueError, OSError
        If the data or a setting is not sound, or the model file cannot be written.
    """

    def __init__(
        self,
        data: str | os.PathLike | SquareDataset,
        output: str | os.PathLike,
        settings: TrainingSettings | None = None,
        network_settings: dict | None = None,
    ):
        self.settings = settings or TrainingSettings()
        self.output = Path(output)
        require_writable(output)
        known = set(asdict(CorrectionSettings()))
        if unknown := sorted(set(network_settings or {}) - known):
            raise ValueError(
                f"network {CORRECTION!r} has no setting {unknown[0]!r}; known: {', '.join(sorted(known))}"
            )
        self._network_settings = CorrectionSettings(**(network_settings or {}))
        self.squares = data if isinstance(data, SquareDataset) else read_squares(data)
        identity = {"network": CORRECTION, "network settings": asdict(self._network_settings)}
        identity |= asdict(self.settings) | {"dataset": self.squares.content_hash}
        self.checkpoints = Checkpoints(self.output, identity)

    @property
    def metrics_path(self) -> Path:
        """Where the metrics are written."""
        return Path(f"{self.output}.metrics.jsonl")

    def run(
        self,
        progress: Callable[[CorrectionReport], None] | None = None,
        watch: Watch | None = None,
        *,
        resume: bool = False,
    ) -> CorrectionReport | None:
        """Train, and write the model with the least error; None if the watch ended it before."""
        state = self.checkpoints.read() if resume else None
        trainer = _Trainer(self.squares, self.settings, self._network_settings)
        if state is not None:
            trainer.load_state(state)
        metrics = MetricsFile(self.metrics_path, None if state is None else state["step"])

        def report(now: CorrectionReport) -> None:
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

    def __init__(self, squares: SquareDataset, settings: TrainingSettings, how: CorrectionSettings):
        torch.manual_seed(settings.seed)
        self._squares, self._settings, self._how = squares, settings, how
        self.network = CorrectionNetwork(squares.subdomain.cells, how)
        self._samples = CorrectionSamples(squares, self.network)
        self._learned = len(squares.boundary) - squares.held_out
        self._optimiser = build_optimiser(self.network.parameters(), settings)
        self._steps = settings.epochs * math.ceil(self._learned / settings.batch_size)
        self._before = 0.0
        self._begun = time.perf_counter()
        self._step, self._loss, self._next = 0, math.nan, 0.0
        self._best: CorrectionReport | None = None
        self._best_weights: dict = {}

    @property
    def best(self) -> CorrectionReport:
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

    def run(self, report: Callable[[CorrectionReport], None], watch: Watch) -> bool:
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
        settings, samples = self._settings, self._samples
        factor = learning_rate_factor(done, settings.scaled_warmup, settings.decay_exponent)
        for group in self._optimiser.param_groups:
            group["lr"] = settings.scaled_lr * factor
        rng = np.random.default_rng([settings.seed, self._step])
        chosen = torch.from_numpy(rng.integers(0, self._learned, settings.batch_size))
        found = self.network(samples.inputs[chosen], samples.sigma[chosen])
        loss = ((found - samples.labels[chosen]) * samples.weight[chosen]).square().mean()
        self._optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip or math.inf)
        self._optimiser.step()
        self._step += 1
        self._loss = loss.item()

    @torch.no_grad()
    def _errors(self) -> torch.Tensor:
        """Return what is wrong in the held-out squares, ``(n, Q)``."""
        samples, compiled = self._samples, self.network.matrices()
        every = torch.arange(self._learned, len(samples.sigma)).split(_BATCH)
        found = [correct(samples.inputs[part], samples.sigma[part], compiled) for part in every]
        return torch.cat(found) - samples.labels[self._learned :]

    def _validate(self, report: Callable[[CorrectionReport], None]) -> None:
        size = self._samples.values[self._learned :].square().mean().sqrt()
        now = CorrectionReport(
            step=self._step,
            progress=self._progress,
            seconds=self._seconds,
            loss=self._loss,
            lr=self._optimiser.param_groups[0]["lr"],
            error=float(self._errors().square().mean().sqrt() / size),
            linear=float(self._samples.labels[self._learned :].square().mean().sqrt() / size),
        )
        if self._best is None or now.error < self._best.error:
            self._best = now
            self._best_weights = copy.deepcopy(self.network.state_dict())
        report(now)

    def card(self) -> ModelCard:
        """Write down what the network is, was trained on, and reaches."""
        squares, samples, best = self._squares, self._samples, self.best
        wrong = self._errors()
        shares = wrong.square().mean(dim=1).sqrt() / samples.size[self._learned :, 0]
        how = {"steps": self._step, "seconds": round(self._seconds, 1), "ranks": 1}
        learned = slice(0, self._learned)
        g, w = samples.inputs[learned].split(
            [4 * squares.subdomain.cells, len(self.network.points)], 1
        )
        largest = float(g.abs().max())
        ends = zip(squares.parameters.min(axis=0), squares.parameters.max(axis=0), strict=True)
        ranges = {
            name: [float(f"{least:.2g}"), float(f"{most:.2g}")]
            for name, (least, most) in zip(squares.parameter_names, ends, strict=True)
        }
        rough = roughness(g) / samples.size[learned, 0]
        return ModelCard(
            pde=squares.pde,
            cells=squares.subdomain.cells,
            size=squares.subdomain.size,
            network=CORRECTION,
            settings=asdict(self._how),
            lifting_degree=None,
            boundary_range=[-largest, largest],
            ranges=ranges
            | {
                SOURCE: [0.0, float(w.abs().max())],
                ROUGHNESS: [0.0, float(np.quantile(rough.numpy(), _RANGE))],
            },
            validation={
                "error": best.error,
                "median": float(shares.median()),
                "largest": float(wrong.abs().max()),
                "linear": best.linear,
            },
            training={**asdict(self._settings), **how},
            dataset_hash=squares.content_hash,
        )

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
        self._best = CorrectionReport(**state["best"])
        self._best_weights = state["best_weights"]
        self.network.load_state_dict(state["weights"])
        self._optimiser.load_state_dict(state["optimiser"])
