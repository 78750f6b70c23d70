"""Which files the options of a command name, and what was in them: a run is repeated with the same ones, or not at all."""

import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mosaicdd.problems.sides.conditions import split_at_comma

_CHUNK = 2**20  # bytes
_TEXTS = ("expr:", "gp:", "lognormal:")  # values that name no file
_NAMES = {"pde", "local_solver", "reference"}  # options that take names of others, too
_VALUES = {"boundary", "initial", "domain", "points", "config", *_NAMES}
# A place, and what it is called.
NAMED_PLACE = re.compile(r"\s*(?!expr:)([A-Za-z_][\w-]*)\s*:\s*(.*\S)\s*")


def split_at_equals(text: str) -> tuple[str, str]:
    """Split ``NAME=SPEC``; a name may be an expression that compares, as ``x <= 1``."""
    name, *spec = re.split("(?<![<>=!])=(?!=)", text, maxsplit=1)
    return name, "".join(spec)


def checksums(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the CRC-32 and the length of each file that options name, by the path as it was typed.

    One that cannot be read is left out: whoever needs it says so.
    """
    names = (
        path
        for _, path, _ in _files(
            options, lambda path: os.path.isfile(path) and os.access(path, os.R_OK)
        )
    )
    return {path: checksum(path) for path in dict.fromkeys(names)}


def checksum(path: str | os.PathLike) -> str:
    """Return the CRC-32 of a file, and its length in bytes."""
    digest = size = 0
    with Path(path).open("rb") as file:
        while data := file.read(_CHUNK):
            digest, size = zlib.crc32(data, digest), size + len(data)
    return f"{digest:08x}-{size}"


def with_paths(
    options: Mapping[str, Any], known: Mapping[str, str], folder: str, origin: str
) -> dict[str, Any]:
    """Return options with absolute paths, of files that hold what they did.

    Parameters
    ----------
    options
        By the names of parameters, as `checksums` takes them.
    known
        What that has returned.
    folder
        From which relative paths count.
    origin
        The file that knows all this, for messages.

    Raises
    ------
    FileNotFoundError
        If a file is no longer there.
    ValueError
        If it holds something else.
    """
    changed = {name: list(v) if _several(v) else v for name, v in options.items()}
    for (name, number), path, (text, begin) in _files(options, known.__contains__):
        place = os.path.join(folder, path)
        option = f"--{name.removeprefix('given_').rstrip('s') if number is not None else name.replace('_', '-')}"
        if not os.path.isfile(place):
            counted = "" if os.path.isabs(path) else f", which counts from {folder}"
            raise FileNotFoundError(
                f"{origin} was made with {path}{counted}: there is no file {place} any more; give {option} anew"
            )
        if (present := checksum(place)) != known[path]:
            raise ValueError(
                f"{origin} was made with another {place}: its checksum was {known[path]}, it is {present}; give "
                f"{option} anew"
            )
        # Of two paths in one text the later one comes first: places before it stay.
        if number is None:
            text = changed[name]
            changed[name] = text[:begin] + place + text[begin + len(path) :]
        else:
            text = changed[name][number]
            changed[name][number] = text[:begin] + place + text[begin + len(path) :]
    return changed


def _several(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _files(
    options: Mapping[str, Any], is_file: Callable[[str], bool]
) -> Iterator[tuple[tuple[str, int | None], str, tuple[str, int]]]:
    """List option and number of its value, path, and the text with the place in it; in a text the last path first."""
    for name, value in options.items():
        for number, text in enumerate(value) if _several(value) else [(None, value)]:
            if not isinstance(text, str):
                continue
            for begin in reversed(_begins(name, text)):
                path = _path(name, text, begin, is_file)
                if path is not None:
                    yield (name, number), path, (text, begin)


def _begins(name: str, text: str) -> list[int]:
    """Return where in the value of an option the name of a file may begin."""
    if name in _VALUES:
        return [0]
    if name not in ("given_fields", "given_sides", "given_holds"):
        return []
    left, right = split_at_equals(text)
    begin = len(text) - len(right)
    if name == "given_sides":
        kind, _, spec = right.partition(":")
        begin += len(kind) + 1
        first, comma, _ = split_at_comma(spec) if kind == "robin" else ("", "", "")
        return [begin, begin + len(first) + 1] if comma else [begin]
    if name == "given_holds":
        named = NAMED_PLACE.fullmatch(left)
        place = len(left) - len(left.lstrip()) if named is None else named.start(2)
        return [place, begin]
    return [begin]


def _path(name: str, text: str, begin: int, is_file: Callable[[str], bool]) -> str | None:
    """Return the name of the file that begins there, without the name of an array in it; None if there is none."""
    spec = text[begin:]
    if not spec or spec.startswith(_TEXTS) or _is_number(spec):
        return None
    whole = split_at_equals(spec)[0].rstrip() if name == "given_holds" else spec
    if name == "given_sides":
        whole = split_at_comma(spec)[0]
    ends = {whole: None, whole.rpartition(":/")[0]: None, whole.rpartition(":")[0]: None}
    paths = (path for path in ends if path and is_file(path))
    return next((path for path in paths if name not in _NAMES or Path(path).suffix), None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
