"""What ``train`` shows while it works, and what it leaves behind."""

import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.checkpoints import listening
from mosaicdd.cli.show import Show, stage
from mosaicdd.local_solvers.loading import extract_weights
from mosaicdd.parallel.watch import Watch
from mosaicdd.storage.metrics_file import MetricsFile, TensorBoardEvents, read_metrics
from mosaicdd.storage.model_file import write_model
from mosaicdd.training.checkpoints import Checkpoints
from mosaicdd.training.loop import TrainingResult
from mosaicdd.training.report import Report
from mosaicdd.training.trainer import TrainingDivergedError


def run_training(
    work: Callable[..., TrainingResult],
    title: str,
    quiet: bool,
    watch: Watch,
    checkpoints: Checkpoints,
    metrics: Sequence[MetricsFile | TensorBoardEvents],
) -> TrainingResult:
    """Train on this rank, showing how far it is and listening to signals.

    Parameters
    ----------
    work
        ``work(progress=..., watch=...)``: `train_network` with all else given.
    metrics
        Where each report is written; on one rank.

    Raises
    ------
    click.ClickException
        If the training diverges (exit code 1) or a checkpoint cannot be written (2).
    """
    with stage(title, quiet=quiet) as show, listening(watch):

        def progress(report: Report) -> None:
            _show(show, report)
            for file in metrics:
                file.append(asdict(report))

        try:
            return work(progress=progress, watch=watch)
        except TrainingDivergedError as error:
            raise click.ClickException(f"{error}; {checkpoints.last_good}") from error
        except OSError:
            with bad_input():
                raise


def leave_behind(
    output: str, result: TrainingResult, ranks: int, checkpoints: Checkpoints, as_json: bool
) -> None:
    """Write the model, remove the checkpoints and print the figures; on one rank."""
    card, best = result.card, result.best
    figures = {
        "status": "finished" if result.finished else "interrupted",
        "validation_mse": best.validation_mse,
        "window_mse": best.window_mse,
        "steps": result.steps,
        "seconds": round(result.seconds, 3),
        "samples_per_second": round(result.samples_per_second, 1),
        "ranks": ranks,
        "network": card.network,
        "parameters": sum(p.numel() for p in result.network.parameters()),
        "model": str(output) if result.finished else None,
    }
    if result.finished:
        write_model(output, card, extract_weights(result.network))
        _draw(output, f"{card.network}, validation MSE {best.validation_mse:.1e}")
        checkpoints.remove()
    if as_json:
        click.echo(json.dumps(figures))
    elif result.finished:
        click.echo(
            f"{output}: {card.network}, {figures['parameters']} parameters, validation MSE "
            f"{best.validation_mse:.2e} (windows {best.window_mse:.2e}) after {result.steps} steps "
            f"in {result.seconds:.1f} s"
        )
    else:
        click.echo(
            f"interrupted after step {result.steps}; {checkpoints.last_good}: continue with --resume"
        )


def metrics_path(output: str) -> Path:
    """Return where the metrics of a model's training are written."""
    return Path(f"{output}.metrics.jsonl")


def _draw(output: str, title: str) -> None:
    """Draw the learning curve beside the model, where matplotlib is installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return
    from mosaicdd.report.learning_curve import learning_curve

    learning_curve(read_metrics(metrics_path(output)), title, Path(f"{output}.png"))


def _show(show: Show, report: Report) -> None:
    """Show the losses, the errors, the speed and the time that is left."""
    terms = f"data {report.data_loss:.1e}"
    if report.pde_loss:
        terms += f", PDE {report.pde_loss:.1e}"
    errors = f"validation {report.validation_mse:.1e}, windows {report.window_mse:.1e}"
    speed = f"{report.samples_per_second:.0f} samples/s, {report.seconds_left:.0f} s left"
    show(report.progress, f"step {report.step}, {terms}, {errors}, {speed}")
