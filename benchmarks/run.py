"""Run a benchmark and write its table: ``python benchmarks/run.py NAME [ARGUMENTS]``.

A benchmark is a file beside this one with a function ``main``, whose parameters are the arguments, those after ``*``
the options; what is measured stands in its head, and ``SMALL`` names arguments of a first try: with ``--small`` these
count, and nothing in the repository is written. Without a name all benchmarks are listed.
"""

import argparse
import importlib
import inspect
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch
from common import write_elsewhere

from mosaicdd.parallel.launcher import abort_all_ranks


def main() -> None:
    """Read the command line, and call the benchmark."""
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--call"]:  # by `common.in_process`
        _call(*json.loads(sys.argv[2]))
        return
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__, "\n".join(_listed()), sep="\n")
        return
    module = importlib.import_module(sys.argv[1].replace("-", "_"))
    parser = argparse.ArgumentParser(
        f"run.py {sys.argv[1]}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--small", action="store_true", help="a first try, which writes no table")
    defaults = _add_parameters(parser, module.main)
    given = {k: v for k, v in vars(parser.parse_args(sys.argv[2:])).items() if v not in (None, [])}
    if given.pop("small"):
        write_elsewhere()
        defaults |= getattr(module, "SMALL", {})
    values = defaults | given
    positional, named = [], {}
    for name, parameter in inspect.signature(module.main).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[name] = values[name]
        elif name in values:
            positional.append(values[name])
        else:
            parser.error(f"{name} is needed")
    module.main(*positional, **named)


def _call(file: str, function: str, arguments: list) -> None:
    """Call a function of a benchmark, and print its result as JSON on the first rank."""
    result = getattr(importlib.import_module(file), function)(*arguments)
    if "mpi4py.MPI" not in sys.modules or not sys.modules["mpi4py.MPI"].COMM_WORLD.rank:
        print("\n" + json.dumps(result))


def _listed() -> list[str]:
    """Name all benchmarks, each with the first line of its head."""
    lines = []
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_text()
        if "\ndef main(" in text and path.name != "run.py":
            lines.append(f"{path.stem:20s} {text.splitlines()[0].strip(chr(34))}")
    return lines


def _add_parameters(parser: argparse.ArgumentParser, function: Callable) -> dict[str, Any]:
    """Add the parameters of a function to a parser, all optional; return the values of those that have defaults."""
    hints, defaults = get_type_hints(function), {}
    for name, parameter in inspect.signature(function).parameters.items():
        option = parameter.kind is parameter.KEYWORD_ONLY
        if parameter.default is not parameter.empty:
            defaults[name] = parameter.default
        kinds = [
            kind for kind in (get_args(hints[name]) or (hints[name],)) if kind is not type(None)
        ]
        several = isinstance(parameter.default, list | tuple)
        facts: dict[str, Any] = {"default": None, "help": f"by default {defaults.get(name)}"}
        if kinds[0] is bool:
            facts["action"] = "store_true"
        else:
            facts |= {"type": kinds[0]} | (
                {"nargs": "+" if option else "*"} if several else {"nargs": None if option else "?"}
            )
        parser.add_argument(f"--{name.replace('_', '-')}" if option else name, **facts)
    return defaults


if __name__ == "__main__":
    try:
        main()
    except Exception:
        traceback.print_exc()
        abort_all_ranks()  # an exception on one rank alone would leave the others waiting
        raise
