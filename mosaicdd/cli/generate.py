"""``mosaicdd generate``: draw and solve a dataset of small boundary value problems."""

import functools
import json
import time
from collections.abc import Callable

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.launch import communicator_if_any
from mosaicdd.cli.show import stage
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.storage.atomic import require_writable


def _ranks() -> tuple[int, int, Callable]:
    """Return the number of this rank and of all, and what calls a function on all together."""
    comm = communicator_if_any()
    if comm is None or comm.size == 1:
        return 0, 1, lambda function: function()
    from mosaicdd.parallel.agreement import agree

    return comm.rank, comm.size, functools.partial(agree, comm)


@click.command()
@click.argument("out", type=click.Path())
@click.option("--pde", default="laplace", show_default=True, help="Equation to solve.")
@click.option("--samples", default=20000, show_default=True, help="Number of random problems.")
@click.option("--cells", default=32, show_default=True, help="Cells per side of the subdomain.")
@click.option(
    "--size", default=0.5, show_default=True, help="Side of the subdomain, in domain length."
)
@click.option("--seed", default=0, show_default=True, help="Seed of all random numbers.")
@click.option(
    "--validation",
    default=0.1,
    show_default=True,
    help="Fraction of the samples that training holds out.",
)
@click.option(
    "--windows",
    default=2000,
    show_default=True,
    help="Number of windows of larger solutions, for validation only.",
)
@click.option(
    "--length-scale",
    nargs=2,
    default=(0.03, 1.0),
    show_default=True,
    help="Least and greatest length scale of the boundary data, in domain length.",
)
@click.option(
    "--noise",
    default=0.03,
    show_default=True,
    help="Standard deviation of white noise on boundary data of unit amplitude.",
)
@click.option(
    "--method",
    type=click.Choice(["amg", "direct"]),
    default="amg",
    show_default=True,
    help="pyAMG to a relative residual of 1e-10, or a sparse factorisation.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def generate(
    out: str,
    pde: str,
    samples: int,
    cells: int,
    size: float,
    seed: int,
    validation: float,
    windows: int,
    length_scale: tuple[float, float],
    noise: float,
    method: str,
    as_json: bool,
) -> None:
    """Write a dataset of random boundary data and their solutions to OUT (HDF5).

    Works alone and under mpiexec or srun: the samples are the same on any number of ranks. What a
    run that was ended has made lies in OUT.parts, and the next call continues from it.
    """
    start = time.perf_counter()
    from mosaicdd.problems.equations import equation
    from mosaicdd.training.generation_settings import GenerationSettings
    from mosaicdd.training.parallel_generation import ParallelGeneration

    rank, ranks, together = _ranks()
    with bad_input():
        equation(pde)
        settings = GenerationSettings(
            pde=pde,
            subdomain=Subdomain(cells, size),
            samples=samples,
            windows=windows,
            seed=seed,
            validation=validation,
            length_scale=length_scale,
            noise=noise,
            method=method,
        )
        require_writable(out)
        generation = ParallelGeneration(out, settings, rank, ranks, together)
        generation.open()
    quiet = as_json or rank > 0
    with stage("solving samples", quiet=quiet) as show:
        dataset = generation.run(show)
    if dataset is None:
        return
    seconds = time.perf_counter() - start
    if as_json:
        figures = {
            "dataset": str(out),
            "samples": samples,
            "ranks": ranks,
            "windows": windows,
            "seconds": round(seconds, 3),
            "samples_per_second": round(samples / seconds, 1),
            "dataset_hash": dataset.content_hash,
        }
        click.echo(json.dumps(figures))
    else:
        click.echo(f"{out}: {samples} samples and {windows} windows in {seconds:.1f} s")
