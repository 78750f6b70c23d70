"""What a training leaves: a network, what is known of it, and figures for scripts."""

from dataclasses import dataclass

import torch

from mosaicdd.storage.model_file import ModelCard
from mosaicdd.training.reports import Report

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
        """Root mean square error over that of the lifting alone, where there is one: 1 has learned nothing."""
        return None if self.card is None else self.card.validation.get("relative_error")

    @property
    def far_off(self) -> bool:
        """Whether the network has hardly learned its equation: it would fail its self-test."""
        return self.relative_error is not None and not self.relative_error <= _FAR_OFF

    @property
    def figures(self) -> dict:
        """What a script wants to know, as plain values."""
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
