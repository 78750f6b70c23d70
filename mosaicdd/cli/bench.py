"""``mosaicdd bench``: measure the rates that ``plan`` computes with."""

from pathlib import Path

import click
import torch

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.launch import overwrite_option, world
from mosaicdd.cli.options import device_option, dtype_option
from mosaicdd.cli.show import quiet_option, say, stage
from mosaicdd.parallel.launcher import threads_per_rank
from mosaicdd.storage.atomic import require_replaceable
from mosaicdd.storage.json_line import json_line


@click.command()
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="RATES.json",
    type=click.Path(),
    help="File of rates to write.",
)
@click.option(
    "--local-solver",
    default="laplace",
    show_default=True,
    metavar="NAME|FILE",
    help="A shipped model (laplace, laplace-sdnet), a model file, or 'exact'.",
)
@device_option()
@dtype_option()
@overwrite_option()
@quiet_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def bench(
    output: str, local_solver: str, device: str, dtype: str, overwrite: bool, as_json: bool
) -> None:
    """Measure this machine: solves of several sizes, memory, file and messages, in seconds.

    All ranks work at the same time, as in a solve. Start it as the solves will be started: with as
    many ranks per node, and on two nodes at least to measure the network.

    Example: mpiexec -n 2 mosaicdd bench -o rates.json
    """
    ranks = world()
    from dataclasses import asdict

    from mosaicdd.lattice.subdomain import Subdomain
    from mosaicdd.local_solvers.bound import SharedSolver
    from mosaicdd.local_solvers.exact import ExactSolver
    from mosaicdd.local_solvers.loading import find_network
    from mosaicdd.parallel.machine import device_of_rank
    from mosaicdd.planning.measure import Measurement
    from mosaicdd.planning.presented import rates_text
    from mosaicdd.planning.rates import write_rates
    from mosaicdd.problems.equations import LAPLACE
    from mosaicdd.schwarz.settings import SolveSettings

    def load() -> SharedSolver:
        if local_solver == "exact":
            return ExactSolver(LAPLACE.at(), Subdomain())
        return find_network(local_solver).as_trained()

    torch.set_num_threads(threads_per_rank())
    with bad_input("-o"):
        path = ranks.on_root(
            lambda: require_replaceable(
                output, overwrite=overwrite, suffix=".json", inputs=[local_solver]
            )
        )
    with bad_input():
        settings = SolveSettings(device=str(device_of_rank(ranks, device)), dtype=dtype)
    with bad_input("--local-solver"):
        measurement = ranks.agree(lambda: Measurement(load, settings))
    with stage("measuring", quiet=as_json or not ranks.is_root) as show:
        rates = measurement(ranks, Path(path).absolute().parent, show)
    if ranks.is_root:
        write_rates(path, rates)
        text = f"{rates_text(asdict(rates))}\nwrote {output}"
        say(json_line(asdict(rates)) if as_json else text, asked=as_json)
