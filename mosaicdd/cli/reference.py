"""What ``compare`` and ``plot`` share: the option for a reference, and progress while it is computed."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.options import completed
from mosaicdd.cli.show import stage
from mosaicdd.problems.equations import find_any_equation
from mosaicdd.report.comparison import available
from mosaicdd.report.stored import StoredSolution

# Of a core of 2024 for Laplace's equation; what takes longer is said to.
_SECONDS_PER_NODE = {"pyamg": 2.5e-6, "direct": 1e-5}
_SHOWN = 2.0  # seconds that are worth it
_TICK = 0.5  # seconds


def reference_option(default: str, more: str = "") -> Callable:
    """Declare ``--reference``; ``more`` is what else it may be."""
    return click.option(
        "--reference",
        default=default,
        show_default=True,
        metavar="SPEC",
        shell_complete=completed("report.comparison:known_references"),
        help="'pyamg', 'dst' (fast sine transform), 'direct' (sparse factorisation), 'auto' (one of these), "
        f"'expr:...' in x and y (and z), or another solution file{more}.",
    )


def problem_option(default: str) -> Callable:
    """Declare ``--problem`` and ``--frame``; ``default``: which of several problems are taken without it."""
    number = click.IntRange(min=0)
    problem = click.option(
        "--problem",
        type=number,
        help=f"Which of several problems of the file. [default: {default}]",
    )
    frame = click.option(
        "--frame",
        type=number,
        help="Which of the times of a series, from 0. [default: the last one]",
    )
    return lambda command: problem(frame(command))


def own_equation_option() -> Callable:
    """Declare ``--pde`` for files that know their equation by name only."""
    return click.option(
        "--pde",
        metavar="FILE.py:NAME",
        shell_complete=completed(),
        help="The equation, if it is one of your own. [default: the file's]",
        callback=lambda context, option, spec: _find(spec),
        expose_value=False,
    )


def _find(spec: str | None) -> None:
    """Make an equation of the user's own known by its name."""
    if spec is not None:
        with bad_input("--pde"):
            find_any_equation(spec)


@contextmanager
def waiting(
    reference: str, solution: StoredSolution, problems: int, *, quiet: bool
) -> Iterator[str]:
    """Show on stderr how long the references of some problems like this take, if that is long.

    What is yielded says which reference, where the fastest was asked for.
    """
    reference = available(reference, solution)
    nodes = math.prod(solution.grid.nodes) * problems
    expected = _SECONDS_PER_NODE.get(reference, 0.0) * nodes
    with stage(f"reference by {reference}", quiet=quiet or expected < _SHOWN) as show:
        done, start = threading.Event(), time.monotonic()

        def tick() -> None:
            while not done.wait(_TICK):
                elapsed = time.monotonic() - start
                show(min(elapsed / expected, 0.99), f"{elapsed:.0f} s of about {expected:.0f} s")

        ticking = threading.Thread(target=tick, daemon=True)
        if expected >= _SHOWN and not quiet:
            ticking.start()
        try:
            yield reference
        finally:
            done.set()
            if ticking.is_alive():
                ticking.join()
