"""How settings are declared: once, with their meaning, default and limits.

Settings are frozen dataclasses; the command line makes an option of every field that is declared by
`setting`. Nothing slow is imported here, nor in the modules that hold settings.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, fields
from numbers import Integral, Real
from types import UnionType
from typing import Any, get_args

from mosaicdd.unsupported import Unsupported

_CONCERNS = "concerns"  # what of an error says which argument it is about


def setting(default: Any, text: str, choices: tuple = (), least: float | None = None) -> Any:
    """Declare a field with its meaning.

    Parameters
    ----------
    default
        Its default; None where that depends on other fields.
    text
        What it means, in a sentence for people.
    choices
        The values that it may have; any if empty.
    least
        The smallest value that it may have.
    """
    metadata = {"help": text, "choices": choices, "least": least}
    return field(default=default, metadata=metadata)


def check_settings(settings: Any) -> None:
    """Check the fields of a dataclass against their choices, types of numbers and smallest values.

    Raises
    ------
    ValueError
        If a value is not allowed; None is where it is the default.
    TypeError
        If it is no number where one is needed, or no whole one.
    """
    for entry in fields(settings):
        name, value = entry.name, getattr(settings, entry.name)
        if value is None and entry.default is None:
            continue
        choices, least = (entry.metadata.get(key) for key in ("choices", "least"))
        if choices and value not in choices:
            raise ValueError(unknown(name, value, map(str, choices)))
        kinds = get_args(entry.type) if isinstance(entry.type, UnionType) else (entry.type,)
        for kind, number, what in ((float, Real, "number"), (int, Integral, "whole number")):
            if kind in kinds and (isinstance(value, bool) or not isinstance(value, number)):
                raise TypeError(f"{name} must be a {what}, got {value!r}")
        if least is not None and not value >= least:
            rule = "0 or more" if least == 0 else f"at least {least}"
            raise ValueError(f"{name} must be {rule}, got {value}")


def unknown(what: str, name: object, known: Iterable[str], others: str = "") -> str:
    """Return the message for an unknown name, with the nearest and all known ones.

    Parameters
    ----------
    what
        What it is a name of, as ``"pde"``.
    others
        What else is possible, to stand after the known names.
    """
    return f"unknown {what} {str(name)!r}{meant(name, known := list(known))}; known: {', '.join(known)}{others}"


def meant(name: object, known: Iterable[str]) -> str:
    """Return a remark with the known name nearest to a mistyped one, or nothing."""
    import difflib  # here: only who has mistyped waits for it

    nearest = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {nearest[0]!r}?)" if nearest else ""


def require_type(name: str, value: Any, kind: type | UnionType, wanted: str = "") -> None:
    """Check that an argument is of a class.

    ``wanted``: what to ask for, by default the name of the class. `TypeError` if it is not.
    """
    if not isinstance(value, kind):
        wanted = wanted or f"a {getattr(kind, '__name__', kind)}"
        raise TypeError(f"{name} must be {wanted}, got {type(value).__name__}")


@contextmanager
def concerning(name: str) -> Iterator[None]:
    """Mark errors with the argument that they concern; a context manager and a decorator."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        vars(error).setdefault(_CONCERNS, name)
        raise


@contextmanager
def argument(name: str) -> Iterator[None]:
    """Let errors about an argument begin with its name, as ``local_solver: ...``.

    Those that are about another one (`concerning`) begin with that. Only checks and reading belong inside.
    """
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        if isinstance(error, (OSError, Unsupported)):
            kind: type[Exception] = type(error)
        else:
            kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{vars(error).get(_CONCERNS, name)}: {error}") from error


_LIMIT = 1e12


def read_settings(
    kind: str, text: str, known: Mapping[str, tuple[type[int] | type[float], float]]
) -> dict[str, float]:
    """Read ``NAME=VALUE,...``; return the values that are given, by name.

    `ValueError` if a setting is unknown, given twice, no number or out of range.
    ``kind``: what is set, for messages; ``known``: of each setting its type and its least value.
    """
    settings: dict[str, float] = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        if name not in known:
            raise ValueError(
                f"{kind}: has no setting {name!r}{meant(name, known)}; known: {', '.join(known)}"
            )
        if name in settings:
            raise ValueError(f"{kind}:{name} is given twice")
        number, low = known[name]
        try:
            settings[name] = number(value)
        except ValueError:
            raise ValueError(f"{kind}:{name} must be a number, got {value!r}") from None
        if not low <= settings[name] < _LIMIT:
            raise ValueError(f"{kind}:{name} must be in [{low:g}, {_LIMIT:g}), got {value}")
    return settings
