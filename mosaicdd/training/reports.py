"""The reports of a training at a validation, as its metrics file has them, and its result."""

from dataclasses import dataclass

import torch

from mosaicdd.storage.model_file import ModelCard


@dataclass(frozen=True)
class Report:
    """The state of a training at a validation, with its mean squared errors.

    Parameters
    ----------
    step, progress, seconds
        Steps done, fraction of the training done, and time since its start.
    data_loss, pde_loss
        Terms of the training loss of the last step, on unit remainders, weights included.
    lr
        Learning rate of the last step.
    samples_per_second
        Mean since the start, validation included.
    validation_mse, window_mse
        Of solutions, on held-out samples and on windows of larger solutions.
    """

    step: int
    progress: float
    seconds: float
    data_loss: float
    pde_loss: float
    lr: float
    samples_per_second: float
    validation_mse: float
    window_mse: float

    @property
    def figures(self) -> dict[str, float]:
        """The errors by name."""
        return {"validation_mse": self.validation_mse, "window_mse": self.window_mse}

    @property
    def merit(self) -> float:
        """The number by which the best weights are chosen: the sum of the errors, the least."""
        return self.validation_mse + self.window_mse

    @property
    def errors(self) -> str:
        """The errors in words."""
        return f"validation MSE {self.validation_mse:.2e} (windows {self.window_mse:.2e})"

    @property
    def text(self) -> str:
        """The losses, the errors and the speed, in one line."""
        terms = f"data {self.data_loss:.1e}"
        if self.pde_loss:
            terms += f", PDE {self.pde_loss:.1e}"
        return f"step {self.step}, {terms}, {self.errors}, {self.samples_per_second:.0f} samples/s"


_FAR_OFF = 0.1  # of what the lifting leaves


@dataclass(frozen=True)
class TrainingResult:
    """A trained network with the report of its best validation and the figures of the run.

    Parameters
    ----------
    name, network
        Of the network, which is not the best one if the training was interrupted.
    card
        What the model file says of it; None of a training that was interrupted.
    ranks
        Number of those that trained together.
    """

    name: str
    network: torch.nn.Module
    card: ModelCard | None
    best: Report
    steps: int
    seconds: float
    samples_per_second: float
    ranks: int

    @property
    def finished(self) -> bool:
        """Whether the training reached its end."""
        return self.card is not None

    @property
    def parameters(self) -> int:
        """Number of the network's weights."""
        return sum(p.numel() for p in self.network.parameters())

    @property
    def relative_error(self) -> float | None:
        """Root mean square error relative to that of the lifting alone; 1 has learned nothing."""
        return None if self.card is None else self.card.validation.get("relative_error")

    @property
    def far_off(self) -> bool:
        """Whether the network has hardly learned its equation: it would fail its self-test."""
        return self.relative_error is not None and not self.relative_error <= _FAR_OFF

    @property
    def figures(self) -> dict:
        """The result as plain values, for scripts."""
        return {
            "status": "finished" if self.finished else "interrupted",
            **self.best.figures,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "samples_per_second": round(self.samples_per_second, 1),
            "ranks": self.ranks,
            "network": self.name,
            "parameters": self.parameters,
        }
