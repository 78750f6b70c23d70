"""What ``train`` says at its end: the figures, and what its memory would be."""

import importlib.util
from pathlib import Path

import click

from mosaicdd.cli.show import say
from mosaicdd.storage.json_line import json_line
from mosaicdd.storage.metrics_file import read_metrics
from mosaicdd.training.loop import Training, TrainingResult
from mosaicdd.training.memory import MemoryPlan


def show_result(training: Training, result: TrainingResult, replaces: bool, as_json: bool) -> None:
    """Print the figures, and a word about a model that has learned little.

    Parameters
    ----------
    replaces
        Whether there was a model of this name before.
    """
    best, output = result.best, str(training.output)
    if as_json:
        click.echo(json_line(result.figures | {"model": output if result.finished else None}))
    elif result.finished:
        say(
            f"{output}{' (replaced)' if replaces else ''}: {result.name}, {result.parameters} parameters, "
            f"{best.errors} after {result.steps} steps in {result.seconds:.1f} s"
        )
    else:
        click.echo(
            f"interrupted after step {result.steps}; {training.checkpoints.last_good}: continue "
            "with --resume"
        )
    if result.far_off:
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
    from mosaicdd.report.curves import learning_curve

    title = f"{result.name}, {result.best.errors}"
    learning_curve(read_metrics(training.metrics_path), title, Path(f"{training.output}.png"))


def show_plan(plan: MemoryPlan, as_json: bool) -> None:
    """Print the levels of sharding as a table with an advice, or as one JSON object."""
    if as_json:
        click.echo(json_line(plan.figures))
        return
    advice = (
        f"lowest level that fits: --sharding {plan.fits}"
        if plan.fits
        else "none fits: lower --micro-batch, or use --recompute or more ranks"
    )
    memory = f"{plan.ranks} rank(s), {plan.device_memory / 2**20:.0f} MB each"
    click.echo(f"{plan.table}\n{memory}; {advice}")
