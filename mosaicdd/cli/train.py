"""``mosaicdd train``: train a subdomain network on a dataset, on any number of ranks."""

import importlib.util
import json
import logging
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.config import Recorded, config_option
from mosaicdd.cli.launch import overwrite_option, world
from mosaicdd.cli.options import (
    OWN_EQUATION,
    collected,
    completed,
    declared,
    json_option,
    row,
    settings_options,
    with_options,
)
from mosaicdd.cli.show import quiet_option, say, stage
from mosaicdd.parallel.launcher import threads_per_rank
from mosaicdd.storage.metrics_file import json_line
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings

if TYPE_CHECKING:
    from mosaicdd.training.loop import Training
    from mosaicdd.training.memory import MemoryPlan
    from mosaicdd.training.reports import TrainingResult

# Nothing failed, and the same command with --resume goes on: a batch script can tell by this code.
_INTERRUPTED = os.EX_TEMPFAIL


def _network_settings(pairs: tuple[str, ...]) -> dict:
    """Parse ``name=value`` pairs; values are JSON (numbers, true, false)."""
    settings = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            settings[name] = json.loads(value)
        except json.JSONDecodeError:
            raise ValueError(
                f"--set {pair}: needs NAME=VALUE with a number, true or false, e.g. width=96"
            ) from None
    return settings


_TRAIN = declared(
    network=row(
        "linear, sdnet (the paper's; also for cubes, as mlp), sdnet-concat (its baseline), deeponet, mlp, "
        "family (for a range of the equation's parameters), faces (for squares and for cubes), "
        "or your own as module:Class.",
        default="linear",
        show_default=True,
        shell_complete=completed("networks.registry:known_networks"),
    ),
    set=row(
        "Setting of the network (width, depth, features, sigma, ...); may be repeated.",
        multiple=True,
        metavar="NAME=VALUE",
    ),
    pde=row("Where to find the data's equation if it is your own.", type=OWN_EQUATION),
)
_RUN = declared(
    device=row("Where.", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True),
    checkpoint_minutes=row(
        "Minutes between checkpoints (OUTPUT.checkpoint-STEP), which SIGTERM, SIGUSR1 and Ctrl-C "
        "write, too; a training that ends by itself removes them.",
        default=10.0,
        show_default=True,
    ),
    tensorboard=row(
        "Write the metrics as events for TensorBoard into this folder, too.",
        type=click.Path(),
        metavar="DIR",
    ),
    dry_run=row(
        "Train nothing: print memory per device for each --sharding, and the lowest that fits.",
        is_flag=True,
    ),
    resume=row("Continue from the newest checkpoint.", is_flag=True),
)
_SETTINGS = [settings_options(kind) for kind in (TrainingSettings, ExecutionSettings)]


@click.command(cls=Recorded)
@click.argument("data", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="Model file to write.")
@config_option(
    "TOML file with options (batch-size = 512) and the network's [settings]; flags override.",
    rest="settings",
)
@with_options(_TRAIN, *_SETTINGS, _RUN)
@overwrite_option()
@quiet_option()
@json_option()
def train(
    data: str, output: str, config: dict, device: str, resume: bool, as_json: bool, **options: Any
) -> int:
    """Train a subdomain network on the dataset DATA and write its best weights to a model file.

    Beside it lie MODEL.metrics.jsonl, one line per validation, and MODEL.png, the learning curve (if
    matplotlib is installed). A model that is there is replaced at the end.

    Works alone, and under mpiexec, srun and torchrun. Exit code 0: trained; 1: diverged; 2: bad
    input; 75: interrupted by a signal, after a checkpoint, so that --resume continues.

    Example: mpiexec -n 2 mosaicdd train data.h5 -o model.h5 --network sdnet --points 64
    """
    import torch

    from mosaicdd.parallel.launcher import Watch, listening
    from mosaicdd.storage.metrics_file import require_tensorboard
    from mosaicdd.training.loop import Training
    from mosaicdd.training.objective import rank_group
    from mosaicdd.training.optimisers import TrainingDivergedError

    torch.set_num_threads(threads_per_rank())
    everyone = world()
    network, tensorboard = options["network"], options["tensorboard"]

    def described() -> Training:
        own = {**config, **_network_settings(options["set"])}
        how = collected(TrainingSettings, options), collected(ExecutionSettings, options)
        training = Training(data, output, *how, network, own)
        training.require(options["pde"], overwrite=options["overwrite"])
        return training

    if tensorboard is not None:
        with bad_input("--tensorboard"):
            everyone.run_on_all(lambda: require_tensorboard(tensorboard))
    with bad_input():
        training = everyone.run_on_all(described)
    with ExitStack() as opened:
        with bad_input():
            ranks = opened.enter_context(rank_group(everyone, device))
        if not ranks.is_root:
            logging.getLogger("mosaicdd").setLevel(logging.ERROR)
        with bad_input():
            training.join(ranks, resume)
        if options["dry_run"]:
            if ranks.is_root:
                _show_plan(training.memory(), as_json)
            return 0
        replaces = ranks.is_root and training.output.exists()
        watch = Watch(training.checkpoints.save, 60 * options["checkpoint_minutes"])
        quiet = as_json or not ranks.is_root
        with stage(f"training {network}", quiet=quiet) as show, listening(watch):
            try:
                result = training.run(lambda now: show(now.progress, now.text), watch, tensorboard)
            except TrainingDivergedError as error:
                raise click.ClickException(f"{error}; {training.checkpoints.last_good}") from error
        if ranks.is_root:
            if result.finished:
                _draw(training, result)
            _show_result(training, result, replaces, as_json)
    return 0 if result.finished else _INTERRUPTED


def _show_result(
    training: "Training", result: "TrainingResult", replaces: bool, as_json: bool
) -> None:
    """Print the figures, and a word about a model that has learned little; ``replaces`` an older one of its name, or not."""
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


def _draw(training: "Training", result: "TrainingResult") -> None:
    """Draw the learning curve beside the model, where matplotlib is installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return
    from mosaicdd.report.pictures import learning_curve
    from mosaicdd.storage.metrics_file import read_metrics

    title = f"{result.name}, {result.best.errors}"
    learning_curve(read_metrics(training.metrics_path), title, Path(f"{training.output}.png"))


def _show_plan(plan: "MemoryPlan", as_json: bool) -> None:
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
