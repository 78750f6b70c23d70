"""``mosaicdd train``: train a subdomain network on a dataset, on any number of ranks."""

import functools
import json
import logging
import os
from dataclasses import asdict

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.launch import communicator_if_any, threads_per_rank
from mosaicdd.cli.train_config import read_config
from mosaicdd.cli.train_options import collected_settings, settings_options
from mosaicdd.storage.atomic import require_writable

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


@click.command()
@click.argument("data", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="Model file to write.")
@click.option(
    "--config",
    type=click.Path(),
    is_eager=True,
    callback=read_config,
    help="TOML file with options (batch-size = 512) and the network's [settings]; flags override.",
)
@click.option(
    "--network",
    default="linear",
    show_default=True,
    help="linear, sdnet (the paper's), sdnet-concat (its baseline), deeponet, mlp, or your own as "
    "module:Class.",
)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of the network (width, depth, features, sigma, ...); may be repeated.",
)
@settings_options
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where."
)
@click.option(
    "--checkpoint-minutes",
    default=10.0,
    show_default=True,
    help="Minutes between checkpoints (OUTPUT.checkpoint-STEP), which SIGTERM, SIGUSR1 and Ctrl-C "
    "write, too; a training that ends by itself removes them.",
)
@click.option(
    "--tensorboard",
    type=click.Path(),
    metavar="DIR",
    help="Write the metrics as events for TensorBoard into this folder, too.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Train nothing: print memory per device for each --sharding, and the lowest that fits.",
)
@click.option("--resume", is_flag=True, help="Continue from the newest checkpoint.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def train(
    ctx: click.Context,
    data: str,
    output: str,
    config: dict,
    network: str,
    pairs: tuple[str, ...],
    device: str,
    checkpoint_minutes: float,
    tensorboard: str | None,
    dry_run: bool,
    resume: bool,
    as_json: bool,
) -> int:
    """Train a subdomain network on the dataset DATA and write its best weights to a model file.

    Beside it lie MODEL.metrics.jsonl, one line per validation, and MODEL.png, the learning curve (if
    matplotlib is installed).

    Works alone, and under mpiexec, srun and torchrun. Exit code 0: trained; 1: diverged; 2: bad
    input; 75: interrupted by a signal, after a checkpoint, so that --resume continues.

    Example: mpiexec -n 2 mosaicdd train data.h5 -o model.h5 --network sdnet --points 64
    """
    import torch

    from mosaicdd.cli.train_plan import show_plan
    from mosaicdd.cli.train_run import leave_behind, metrics_path, run_training
    from mosaicdd.local_solvers.networks.own import allow
    from mosaicdd.local_solvers.networks.registry import build_network, check_settings
    from mosaicdd.parallel.watch import Watch
    from mosaicdd.problems.equations import equation
    from mosaicdd.storage.dataset_file import read_dataset
    from mosaicdd.storage.metrics_file import MetricsFile, TensorBoardEvents, require_tensorboard
    from mosaicdd.training.checkpoints import Checkpoints
    from mosaicdd.training.loop import train_network
    from mosaicdd.training.memory_plan import memory_plan
    from mosaicdd.training.objective import require_trainable
    from mosaicdd.training.rank_group import rank_group

    torch.set_num_threads(threads_per_rank())
    with bad_input():
        settings, execution = collected_settings(ctx)
        if ":" in network:
            allow(network)
        network_settings = {**config, **_network_settings(pairs)}
        checked = check_settings(network, network_settings)
        require_writable(output)
        if tensorboard is not None:
            with bad_input("--tensorboard"):
                require_tensorboard(tensorboard)
        dataset = read_dataset(data)
        equation(dataset.pde)
        built = build_network(network, network_settings, dataset.subdomain)
        require_trainable(built, settings, execution)
    identity = {"network": network, "network settings": asdict(checked)} | asdict(settings)
    identity |= {"dataset": dataset.content_hash, "sharding": execution.sharding}
    checkpoints = Checkpoints(output, identity)
    with rank_group(communicator_if_any(), device) as ranks:
        if not ranks.is_root:
            logging.getLogger("mosaicdd").setLevel(logging.ERROR)
        with bad_input():
            execution.require_ranks(ranks.size, settings, len(dataset.boundary) - dataset.held_out)
        if dry_run:
            if ranks.is_root:
                levels = memory_plan(built, dataset, settings, execution, ranks.size, device)
                show_plan(levels, ranks.device, ranks.size, as_json)
            return 0
        state = None
        if resume:
            with bad_input("--resume"):
                state = ranks.agreed(checkpoints.read)
        watch = Watch(checkpoints.save, 60 * checkpoint_minutes)
        work = functools.partial(
            train_network,
            network,
            network_settings,
            dataset,
            settings,
            ranks=ranks,
            execution=execution,
            state=state,
        )
        quiet = as_json or not ranks.is_root
        title = f"training {network}"
        metrics = []
        if ranks.is_root:
            kept = None if state is None else state["step"]
            metrics.append(MetricsFile(metrics_path(output), kept))
            if tensorboard is not None:
                metrics.append(TensorBoardEvents(tensorboard, kept))
        result = run_training(work, title, quiet, watch, checkpoints, metrics)
        if ranks.is_root:
            leave_behind(output, result, ranks.size, checkpoints, as_json)
    return 0 if result.finished else _INTERRUPTED
