"""Turns what the package raises about its input into one line and exit code 2."""

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def bad_input(option: str | None = None, words: dict[str, str] | None = None) -> Iterator[None]:
    """Re-raise errors about the input, prefixed by the option that they belong to.

    Parameters
    ----------
    words
        What the library says of its arguments, and what the command line says instead.

    Only checks and reading belong inside: an error of the same type in the work itself is a fault
    of the program and keeps its traceback.
    """
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        text = " ".join(str(error).split())
        for argument, said in (words or {}).items():
            text = text.replace(argument, said)
        exception = click.ClickException(f"{option}: {text}" if option else text)
        exception.exit_code = 2
        raise exception from error
