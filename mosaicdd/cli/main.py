"""The ``mosaicdd`` command: its subcommands are imported when they are called.

Exit codes: 0 done (for ``solve``: converged); 1 not converged, or an error that is not the
user's; 2 bad input, with one line on stderr; 75 (``train``) interrupted, after a checkpoint.
"""

import importlib
import logging
import os
import signal
import sys
import traceback
from typing import Any, TextIO

import click

import mosaicdd
from mosaicdd.cli.bad_input import BadInputError, bad_input
from mosaicdd.parallel.launcher import (
    abort_all_ranks,
    launcher_rank,
    threads_per_rank,
    too_many_threads,
)
from mosaicdd.settings import unknown
from mosaicdd.unsupported import refuse_former

_COMMANDS = {
    "generate": "Make a dataset of small boundary value problems.",
    "train": "Train a subdomain network on a dataset.",
    "models": "List the networks that are shipped.",
    "solve": "Solve a boundary value problem on a large domain.",
    "compare": "Compare a solution with a reference.",
    "quantities": "Print flows, balance, mean and largest value of a solution.",
    "plot": "Draw a solution, a reference and their difference.",
    "report": "Write a page about solutions: pictures, convergence, time, how they were made.",
    "info": "Show what a file holds and how it was made.",
    "doctor": "Say what is installed and started, and what to do about what is wrong.",
    "plan": "Count messages and memory of a solve on any number of ranks.",
    "demo": "Solve, compare and draw a first problem.",
}


class _Commands(click.Group):
    """Subcommands, each in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        return getattr(importlib.import_module(f"mosaicdd.cli.{name}"), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not args[0].startswith("-"):
            with bad_input():
                refuse_former("command", args[0])
            ctx.fail(unknown("command", args[0], _COMMANDS))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(mosaicdd.__version__, prog_name="mosaicdd")
@click.pass_context
def cli(context: click.Context) -> None:
    """Solve partial differential equations on large structured grids, with an error estimate.

    Every command works alone and under mpiexec or srun.
    """
    if context.invoked_subcommand != "doctor" and (
        told := too_many_threads()
    ):  # which says so itself
        raise BadInputError(told)


def main() -> None:
    """Run the command line and end the process, and with an error all ranks of the job."""
    _open_standard_streams()
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    # A batch system's warning before the time limit. Long work listens to it; before and after there
    # is nothing to keep, and it must not end a program that is about to end well.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.environ["MPLBACKEND"] = "agg"  # pictures are files: no window, whatever the user's is
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as python -m does: the user's modules beside the data
    # Of tensors, too, in pages of 2 MB: before torch allocates any; see `prepare_memory`.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    # One thread per rank, as for torch: OpenBLAS' threads mostly wait for each other here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(threads_per_rank()))
    stream, sys.stdout = sys.stdout, _Patient(sys.stdout)
    try:
        code = cli.main(prog_name="mosaicdd", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        if launcher_rank() == 0:
            error.show()
        code = error.exit_code
    except click.ClickException as error:
        if launcher_rank() == 0:
            click.echo(f"Error: {' '.join(_message(error).split())}", err=True)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        abort_all_ranks()
        code = 1
    except OSError as error:
        if _speaks(error):
            click.echo(f"Error: {error}", err=True)
        abort_all_ranks()
        code = 1
    except Exception as error:  # noqa: BLE001 - the end of the program: every rank must leave
        if _speaks(error):
            traceback.print_exc()
        abort_all_ranks()
        code = 1
    finally:
        sys.stdout = stream
    sys.exit(code if isinstance(code, int) else 0)


def _message(error: click.ClickException) -> str:
    """Return what an error says; of an option that has left, what to use instead."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        try:
            refuse_former("option", f"{error.ctx.command.name} {error.option_name}")
        except ValueError as former:
            return str(former)
    return error.format_message()


def _open_standard_streams() -> None:
    """Let streams that were closed, as by ``>&-``, lead nowhere.

    The next file to be opened would otherwise get the number of one, and what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


class _Patient:
    """Standard output whose reader may have gone, as that of ``| head``: the rest is for nobody.

    The exit code tells of the work, not of who listens; click would end with 1.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            return self._leave()

    def flush(self) -> None:
        """Hand over what was written."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._leave()

    def _leave(self) -> int:
        nobody = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nobody, self._stream.fileno())
        os.close(nobody)
        return 0


def _speaks(error: Exception) -> bool:
    """Say whether this rank is to show an error: each its own, the first one that of all together."""
    return launcher_rank() == 0 or not hasattr(error, "of_ranks")


if __name__ == "__main__":
    main()
