"""``mosaicdd train``: train a subdomain network on a dataset."""

import json

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.show import stage
from mosaicdd.storage.atomic import require_writable


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
    "--network",
    type=click.Choice(["linear", "sdnet"]),
    default="linear",
    show_default=True,
    help="Linear in the boundary, or the paper's SDNet.",
)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of the network (width, depth, features, sigma, ...); may be repeated.",
)
@click.option("--epochs", default=200, show_default=True, help="Passes over the training samples.")
@click.option("--batch-size", default=256, show_default=True, help="Samples per step.")
@click.option(
    "--points",
    default=0,
    show_default=True,
    help="Data points per step, drawn among the interior nodes; 0 takes all.",
)
@click.option(
    "--optimizer",
    type=click.Choice(["adamw", "soap"]),
    default="soap",
    show_default=True,
    help="Optimiser.",
)
@click.option("--lr", default=3e-3, show_default=True, help="Greatest learning rate.")
@click.option(
    "--pde-weight", default=0.0, show_default=True, help="Weight of the PDE loss; 0 leaves it out."
)
@click.option("--collocation", default=64, show_default=True, help="Collocation points per step.")
@click.option(
    "--lifting-degree",
    default=2,
    show_default=True,
    help="Degree of the exact solutions that the lifting takes out.",
)
@click.option(
    "--max-seconds",
    default=0.0,
    show_default=True,
    help="End training, with its schedule, within this many seconds; 0 sets no limit.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of weights and sample order.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def train(
    data: str,
    output: str,
    network: str,
    pairs: tuple[str, ...],
    epochs: int,
    batch_size: int,
    points: int,
    optimizer: str,
    lr: float,
    pde_weight: float,
    collocation: int,
    lifting_degree: int,
    max_seconds: float,
    seed: int,
    as_json: bool,
) -> None:
    """Train a subdomain network on the dataset DATA and write its best weights to a model file."""
    from mosaicdd.local_solvers.loading import extract_weights
    from mosaicdd.local_solvers.networks.registry import check_settings
    from mosaicdd.storage.dataset_file import read_dataset
    from mosaicdd.storage.model_file import write_model
    from mosaicdd.training.loop import Report, TrainingDivergedError, train_network
    from mosaicdd.training.settings import TrainingSettings

    with bad_input():
        settings = TrainingSettings(
            epochs=epochs,
            batch_size=batch_size,
            points=points,
            optimizer=optimizer,
            lr=lr,
            pde_weight=pde_weight,
            collocation=collocation,
            lifting_degree=lifting_degree,
            max_seconds=max_seconds,
            seed=seed,
        )
        network_settings = _network_settings(pairs)
        check_settings(network, network_settings)
        require_writable(output)
        dataset = read_dataset(data)
    with stage(f"training {network}", quiet=as_json) as show:

        def report(state: Report) -> None:
            errors = f"validation {state.validation_mse:.1e}, windows {state.window_mse:.1e}"
            show(state.progress, f"step {state.step}, {errors}")

        try:
            result = train_network(network, network_settings, dataset, settings, report)
        except TrainingDivergedError as error:
            raise click.ClickException(str(error)) from error
    write_model(output, result.card, extract_weights(result.network))
    figures = {
        "validation_mse": result.best.validation_mse,
        "window_mse": result.best.window_mse,
        "steps": result.steps,
        "seconds": round(result.seconds, 3),
        "samples_per_second": round(result.samples_per_second, 1),
        "ranks": 1,
        "network": network,
        "parameters": sum(p.numel() for p in result.network.parameters()),
        "model": str(output),
    }
    if as_json:
        click.echo(json.dumps(figures))
    else:
        click.echo(
            f"{output}: {network}, {figures['parameters']} parameters, validation MSE "
            f"{figures['validation_mse']:.2e} (windows {figures['window_mse']:.2e}) after "
            f"{result.steps} steps in {result.seconds:.1f} s"
        )
