"""What a training says of itself while it runs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """The state of a training at a validation.

    Parameters
    ----------
    step, progress, seconds
        Steps done, fraction of the training done, and time since its start.
    data_loss, pde_loss
        Terms of the training loss of the last step, on unit remainders, weights included.
    lr
        Learning rate of the last step.
    validation_mse, window_mse
        Mean squared errors on held-out samples and on windows of larger solutions.
    samples_per_second
        Mean since the start, validation included.
    """

    step: int
    progress: float
    seconds: float
    data_loss: float
    pde_loss: float
    lr: float
    validation_mse: float
    window_mse: float
    samples_per_second: float

    @property
    def error(self) -> float:
        """The number by which the best weights are chosen."""
        return self.validation_mse + self.window_mse

    @property
    def seconds_left(self) -> float:
        """Time to the end, if it goes on as it went."""
        return self.seconds * (1 / self.progress - 1) if self.progress else float("inf")
