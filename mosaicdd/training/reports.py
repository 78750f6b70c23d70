"""The state of a training at a validation, as its metrics file has it, line by line."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Report:
    """What is known of every training.

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
    def merit(self) -> float:
        """The number by which the best weights are chosen: the least."""
        raise NotImplementedError

    @property
    def errors(self) -> str:
        """The errors in words."""
        raise NotImplementedError

    @property
    def figures(self) -> dict[str, Any]:
        """The errors by name."""
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
    """Of a network that gives solutions of a linear equation.

    Parameters
    ----------
    validation_mse, window_mse
        Mean squared errors on held-out samples and on windows of larger solutions.
    """

    validation_mse: float
    window_mse: float

    @property
    def merit(self) -> float:
        """The sum of both errors."""
        return self.validation_mse + self.window_mse

    @property
    def errors(self) -> str:
        """Both errors."""
        return f"validation MSE {self.validation_mse:.2e} (windows {self.window_mse:.2e})"

    @property
    def figures(self) -> dict[str, Any]:
        """Both errors by name."""
        return {"validation_mse": self.validation_mse, "window_mse": self.window_mse}


@dataclass(frozen=True)
class RelativeReport(Report):
    """Of a network that makes something else better: averages, or the linear equation's solution.

    Parameters
    ----------
    error
        On held-out data, relative; the lesson says which.
    plain
        The same without the network.
    """

    error: float
    plain: float

    @property
    def merit(self) -> float:
        """The error."""
        return self.error

    @property
    def errors(self) -> str:
        """The error, and what it would be without the network."""
        return f"error {self.error:.2e} on held-out data (without the network {self.plain:.2e})"

    @property
    def figures(self) -> dict[str, Any]:
        """The error by name, and that without the network."""
        return {"error": self.error, "plain": self.plain}
