"""The options of ``solve``, in the order of its help."""

from collections.abc import Callable

import click

from mosaicdd.cli.types import EXTENT, SIZE_PAIR
from mosaicdd.problems.references import REFERENCES

_OPTIONS = (
    click.option("-o", "--output", required=True, metavar="OUT.h5", help="Solution file to write."),
    click.option(
        "--cells", type=SIZE_PAIR, required=True, help="Grid cells along x and y, as 2048x2048."
    ),
    click.option(
        "--boundary",
        default="gp:seed=0",
        show_default=True,
        metavar="SPEC",
        help="Dirichlet data: 'gp:seed=0,length=L,amplitude=A,noise=S' (lengths in domain units; L by "
        "default 1/16 of the perimeter), 'expr:sin(2*pi*x)', or an HDF5 file. Many problems: "
        "'gp:seed=0..63', or a file whose edges have a row for each.",
    ),
    click.option(
        "--local-solver",
        default="laplace",
        show_default=True,
        metavar="NAME|FILE",
        help="A shipped model (laplace, laplace-sdnet), a model file, or 'exact'.",
    ),
    click.option("--pde", default="laplace", show_default=True, help="Equation to solve."),
    click.option(
        "--levels",
        type=click.Choice(["1", "2"]),
        default="2",
        show_default=True,
        help="2: with the coarse space; 1: subdomains only, as in the paper.",
    ),
    click.option(
        "--sweep",
        type=click.Choice(["additive", "phases"]),
        help="All subdomains at once, or four phases of disjoint ones (one level only). "
        "[default: additive with 2 levels, phases with 1]",
    ),
    click.option(
        "--sync",
        type=click.Choice(["iteration", "phase"]),
        default="iteration",
        show_default=True,
        help="With phases: halo exchange once per iteration (the paper) or after each phase.",
    ),
    click.option(
        "--accelerate",
        type=click.Choice(["none", "chebyshev", "gmres", "anderson"]),
        help="chebyshev: relaxed by factors made for two levels, at no cost; gmres: for linear local "
        "solvers, anderson: for any, both for more memory. [default: chebyshev with 2 levels in "
        "float64, else none]",
    ),
    click.option(
        "--certify",
        type=float,
        metavar="RTOL",
        help="Go on with the exact local solver until the discrete residual, relative to the right-hand "
        "side, is this small: a right answer from any network.",
    ),
    click.option(
        "--out-of-range",
        type=click.Choice(["network", "exact"]),
        default="network",
        show_default=True,
        help="What solves subdomains with rougher data than the network was trained on.",
    ),
    click.option(
        "--rtol",
        type=float,
        help="Stop when the update is this small, relative to the solution. "
        "[default: 1e-7 in float64, 1e-5 in float32]",
    ),
    click.option(
        "--max-iterations",
        type=int,
        help="Give up after so many. [default: 100; one level: 100000]",
    ),
    click.option(
        "--until-mae",
        type=float,
        help="Stop at this mean absolute error on the interface instead, against --reference (the "
        "paper's way).",
    ),
    click.option(
        "--reference",
        type=click.Choice(sorted(REFERENCES)),
        default="dst",
        show_default=True,
        help="Reference of --until-mae: fast sine transform or pyAMG.",
    ),
    click.option(
        "--batch-subdomains",
        type=int,
        help="Subdomains per call of the local solver; 1 is the paper's unbatched baseline. "
        "[default: 4096; cuda: 65536]",
    ),
    click.option(
        "--batch",
        type=click.IntRange(min=1),
        help="Problems that a group of ranks solves at once, of many. [default: up to 8192 "
        "subdomains together; 1 with gmres, anderson or --certify]",
    ),
    click.option(
        "--replicas",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Groups that the ranks are split into; each, of --dims ranks, solves its share of many "
        "problems.",
    ),
    click.option(
        "--checkpoint-minutes",
        type=click.FloatRange(min=0.0),
        default=10.0,
        show_default=True,
        help="Minutes between checkpoints of the iteration (OUT.h5.checkpoint), which SIGTERM, SIGUSR1 "
        "and Ctrl-C write, too; a run that ends by itself removes it. Many problems: none.",
    ),
    click.option(
        "--resume", is_flag=True, help="Go on from OUT.h5.checkpoint, on any number of ranks."
    ),
    click.option(
        "--dims",
        type=SIZE_PAIR,
        help="Ranks along x and y, as 2x3; of each group, with --replicas. [default: the shortest "
        "block edges]",
    ),
    click.option(
        "--halo-depth",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Lattice cells of the neighbours that a rank keeps: halos are exchanged in every so "
        "many iterations only (see mosaicdd plan).",
    ),
    click.option(
        "--halo-dtype",
        type=click.Choice(["float64", "float32"]),
        help="Precision of values on their way between ranks; float32 limits --rtol to 1e-8. "
        "[default: --dtype]",
    ),
    click.option(
        "--mpi-buffers",
        type=click.Choice(["host", "cuda"]),
        default="host",
        show_default=True,
        help="Whose memory MPI is handed with --device cuda (see mosaicdd doctor).",
    ),
    click.option(
        "--trace",
        metavar="FILE.json",
        help="Write what every rank did when, for Perfetto (ui.perfetto.dev) or chrome://tracing.",
    ),
    click.option(
        "--device",
        type=click.Choice(["cpu", "cuda"]),
        default="cpu",
        show_default=True,
        help="Where.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(["float64", "float32"]),
        default="float64",
        show_default=True,
        help="Precision of the iteration and of the file.",
    ),
    click.option(
        "--fields",
        type=click.Choice(["solution", "interface"]),
        default="solution",
        show_default=True,
        help="interface: write the values on the lattice lines only, and skip the fill.",
    ),
    click.option(
        "--window",
        "extent",
        type=EXTENT,
        help="Fill and write this part of the domain only, snapped outwards to grid nodes.",
    ),
    click.option(
        "--points",
        metavar="FILE",
        help="Write the solution at these points, too, between the nodes by the network: rows 'x y', "
        "text or .npy.",
    ),
    click.option(
        "--shards",
        is_flag=True,
        help="Every rank writes its part of the field to OUT.h5.shards, which OUT.h5 presents as one.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."),
)


def solve_options(command: Callable) -> Callable:
    """Add the options of ``solve``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
