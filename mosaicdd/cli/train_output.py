"""What ``train`` shows: how far it is, what it reached, and what its memory would be."""

import importlib.util
from dataclasses import asdict
from pathlib import Path

import click
import torch

from mosaicdd.cli.show import Show
from mosaicdd.parallel.machine import device_memory
from mosaicdd.storage.json_line import json_line
from mosaicdd.storage.metrics_file import read_metrics
from mosaicdd.training.loop import Training, TrainingResult
from mosaicdd.training.memory_plan import MemoryLevel
from mosaicdd.training.validation import Report

_PARTS = ("weights", "gradients", "optimiser", "activations", "samples", "total")
_MB = 2**20


def show_report(show: Show, report: Report) -> None:
    """Show the losses, the errors and the speed."""
    terms = f"data {report.data_loss:.1e}"
    if report.pde_loss:
        terms += f", PDE {report.pde_loss:.1e}"
    errors = f"validation {report.validation_mse:.1e}, windows {report.window_mse:.1e}"
    speed = f"{report.samples_per_second:.0f} samples/s"
    show(report.progress, f"step {report.step}, {terms}, {errors}, {speed}")


def show_result(
    training: Training, result: TrainingResult, ranks: int, replaces: bool, as_json: bool
) -> None:
    """Print the figures, and a word about a model that has learned little.

    Parameters
    ----------
    replaces
        Whether there was a model of this name before.
    """
    best, output = result.best, str(training.output)
    if as_json:
        figures = {
            "status": "finished" if result.finished else "interrupted",
            "validation_mse": best.validation_mse,
            "window_mse": best.window_mse,
            "steps": result.steps,
            "seconds": round(result.seconds, 3),
            "samples_per_second": round(result.samples_per_second, 1),
            "ranks": ranks,
            "network": result.card.network,
            "parameters": result.parameters,
            "model": output if result.finished else None,
        }
        click.echo(json_line(figures))
    elif result.finished:
        click.echo(
            f"{output}{' (replaced)' if replaces else ''}: {result.card.network}, "
            f"{result.parameters} parameters, validation MSE {best.validation_mse:.2e} (windows "
            f"{best.window_mse:.2e}) after {result.steps} steps in {result.seconds:.1f} s"
        )
    else:
        click.echo(
            f"interrupted after step {result.steps}; {training.checkpoints.last_good}: continue "
            "with --resume"
        )
    if result.finished and result.far_off:
        click.echo(
            f"{output} is far off: its validation error is {result.relative_error:.0%} of what the "
            "lifting alone leaves (10% is usable, 1% good); give it more --epochs, another --lr, or "
            "more samples",
            err=True,
        )


def draw(training: Training, result: TrainingResult) -> None:
    """Draw the learning curve beside the model, where matplotlib is installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return
    from mosaicdd.report.figures import learning_curve

    title = f"{result.card.network}, validation MSE {result.best.validation_mse:.1e}"
    learning_curve(read_metrics(training.metrics_path), title, Path(f"{training.output}.png"))


def show_plan(levels: list[MemoryLevel], device: torch.device, ranks: int, as_json: bool) -> None:
    """Print the levels as a table, or as one JSON object.

    Parameters
    ----------
    ranks
        Number of ranks, which on processors share the memory of a machine.
    """
    memory = device_memory(device, ranks)
    fits = next((level.sharding for level in levels if level.total <= memory), None)
    if as_json:
        rows = [asdict(level) | {"total": level.total} for level in levels]
        figures = {"levels": rows, "device_memory": memory, "ranks": ranks, "fits": fits}
        click.echo(json_line(figures))
        return
    click.echo(f"{'MB per device':14}" + "".join(f"{part:>13}" for part in _PARTS))
    for level in levels:
        values = "".join(f"{getattr(level, part) / _MB:13.1f}" for part in _PARTS)
        click.echo(f"{level.sharding:14}{values}")
    advice = (
        f"lowest level that fits: --sharding {fits}"
        if fits
        else "none fits: lower --micro-batch, or use --recompute or more ranks"
    )
    click.echo(f"{ranks} rank(s), {memory / _MB:.0f} MB each; {advice}")
