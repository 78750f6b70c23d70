"""The state of a training at a validation, as its metrics file has it, line by line."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Report:
    """What is known of every training; the errors are those of its lesson.

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
    """

    step: int
    progress: float
    seconds: float
    data_loss: float
    pde_loss: float
    lr: float
    samples_per_second: float

    @property
    def figures(self) -> dict[str, float]:
        """The errors by name."""
        common = {field.name for field in fields(Report)}
        return {name: value for name, value in vars(self).items() if name not in common}

    @property
    def merit(self) -> float:
        """The number by which the best weights are chosen: the least."""
        raise NotImplementedError

    @property
    def errors(self) -> str:
        """The errors in words."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The losses, the errors and the speed, in one line."""
        terms = f"data {self.data_loss:.1e}"
        if self.pde_loss:
            terms += f", PDE {self.pde_loss:.1e}"
        return f"step {self.step}, {terms}, {self.errors}, {self.samples_per_second:.0f} samples/s"


@dataclass(frozen=True)
class SolutionReport(Report):
    """Mean squared errors of solutions, on held-out samples and on windows of larger solutions."""

    validation_mse: float
    window_mse: float

    @property
    def merit(self) -> float:
        """The sum of both."""
        return self.validation_mse + self.window_mse

    @property
    def errors(self) -> str:
        """Both in words."""
        return f"validation MSE {self.validation_mse:.2e} (windows {self.window_mse:.2e})"


@dataclass(frozen=True)
class RelativeReport(Report):
    """The relative error on held-out data, as the lesson has it, and the same without the network."""

    error: float
    plain: float

    @property
    def merit(self) -> float:
        """The error."""
        return self.error

    @property
    def errors(self) -> str:
        """Both in words."""
        return f"error {self.error:.2e} on held-out data (without the network {self.plain:.2e})"
