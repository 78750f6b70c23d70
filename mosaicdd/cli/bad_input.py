"""Turns what the package raises about its input into one line and exit code 2.

The package speaks of arguments, people gave options. In its messages an argument is marked by its
form: ``halo_depth`` by its underscore, others where they stand with a value, as ``batch=1``, or
begin the message, as ``local_solver: ...`` or ``rtol must ...``.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

_QUOTED = r"'(?P<quoted>[^']*)'"
_WITH_VALUE = re.compile(rf"\b(?P<name>[a-z]\w*)=(?:{_QUOTED}|(?P<plain>[\w.+-]+))")
_BEGIN = re.compile(r"(?P<name>[a-z]\w*)(?=: | must )")
_UNDERSCORED = re.compile(r"(?<![\w/.-])(?P<name>[a-z]+(?:_[a-z]+)+)(?![\w/.=-])")


class BadInputError(click.ClickException):
    """What the user asked for cannot be done: one line, and the exit code of a wrong option."""

    exit_code = 2


@contextmanager
def bad_input(option: str | None = None, *, only: type[Exception] = Exception) -> Iterator[None]:
    """Re-raise errors about the input, in the words of the command line.

    Only checks and reading belong inside: an error of the same type in the work itself is a fault
    of the program and keeps its traceback; where work is inside, too, all is one that is not of the
    type ``only``. They belong to the option, where the message itself does not begin with an
    argument.
    """
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        if not isinstance(error, only):
            raise
        text = in_options(" ".join(str(error).split()), _options())
        raise BadInputError(f"{option}: {text}" if option else text) from error


def in_options(text: str, options: dict[str, str]) -> str:
    """Replace the arguments in a message by options, which are known by the arguments' names."""

    def with_value(match: re.Match) -> str:
        option = options.get(match["name"])
        if option is None:
            return match[0]
        value = match["plain"] or match["quoted"]
        return {"True": option, "False": option.replace("--", "--no-", 1)}.get(
            value, f"{option} {value}"
        )

    def alone(match: re.Match) -> str:
        return options.get(match["name"], match[0])

    text = _BEGIN.sub(alone, text, count=1) if _BEGIN.match(text) else text
    return _UNDERSCORED.sub(alone, _WITH_VALUE.sub(with_value, text))


def _options() -> dict[str, str]:
    """Return the options of the command at work by the names of their arguments."""
    context = click.get_current_context(silent=True)
    params = [] if context is None else context.command.params
    options = [param.opts[-1] for param in params if isinstance(param, click.Option)]
    names = {option.lstrip("-").replace("-", "_"): option for option in options}
    # What is given again and again is one argument, as the sides.
    return {f"{name}s": option for name, option in names.items()} | names
