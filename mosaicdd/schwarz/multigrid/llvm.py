"""Functions that LLVM makes for this processor, where llvmlite is installed, and what the loops in them have in common."""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import torch

NAMES = {torch.float32: "float", torch.float64: "double"}


@cache
def function(
    name: str, text: str, arguments: str, result: str | None = None
) -> Callable[..., Any] | None:
    """Return a function of a text in LLVM's language, compiled for this processor; None without llvmlite.

    Parameters
    ----------
    arguments, result
        A letter for each: ``p``, an address, ``i``, a whole number of 64 bits, or ``d``, one in float64.
    """
    try:
        import llvmlite.binding as llvm
    except ImportError:
        return None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kinds = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "d": ctypes.c_double}
    types = [kinds[of] for of in arguments]
    returned = None if result is None else kinds[result]
    call = ctypes.CFUNCTYPE(returned, *types)(engine.get_function_address(name))

    def run(*values: float, kept: object = engine) -> Any:
        """Call it; the code lives as long as its engine."""
        return call(*values)

    return run


def is_plain(parts: Iterable[tuple[torch.Tensor | None, torch.dtype]]) -> bool:
    """Say whether all that is there is contiguous numbers of the kind beside it, of a processor."""
    return all(
        part is None or (part.dtype == dtype and part.device.type == "cpu" and part.is_contiguous())
        for part, dtype in parts
    )


def over_rows(
    head: str,
    columns: Sequence[str],
    lines: Sequence[str],
    *,
    before: Sequence[str] = (),
    width: str | None = None,
    number: str = "i64",
    total: str | None = None,
) -> str:
    """Return a function that goes over the ``%rows`` of a ``%table``, the ``%r``-th at ``%row.at``.

    Parameters
    ----------
    head
        Its name and arguments.
    columns
        The type and the name of each number that a row begins with.
    lines
        For a row, in the block ``row``; the last one leads to ``ended``.
    before
        For all rows.
    width
        How many numbers a row has; by default as many as columns.
    number
        The type of the table's.
    total
        What ``%total``, 0.0 before the first row, is after a row; the function returns the last.
    """
    kind, sums = ("void", []) if total is None else ("double", ["%total = phi double"])
    return "\n".join(
        [
            f"define {kind} @{head} {{",
            "entry:",
            *before,
            "br label %each",
            "each:",
            "%r = phi i64 [0, %entry], [%r.next, %ended]",
            *(f"{start} [0.0, %entry], [{total}, %ended]" for start in sums),
            "%there = icmp slt i64 %r, %rows",
            "br i1 %there, label %row, label %exit",
            "exit:",
            "ret void" if total is None else "ret double %total",
            "row:",
            f"%first = mul i64 %r, {width or len(columns)}",
            f"%row.at = getelementptr {number}, ptr %table, i64 %first",
            *(
                line
                for place, column in enumerate(columns)
                for line in load(f"%{column.split()[1]}", column.split()[0], "%row.at", place)
            ),
            *lines,
            "ended:",
            "%r.next = add i64 %r, 1",
            "br label %each",
            "}",
        ]
    )


def along(
    of: str, step: int, start: str, then: str, lines: Sequence[str], carried: Sequence[str] = ()
) -> list[str]:
    """Return a loop over numbers ``%of.i`` of a stretch of ``%length``, so many at once, as far as these fit.

    Parameters
    ----------
    of, then
        Labels: of the loop, and of what comes after it.
    start
        Where it begins, and the label before it; see `carried`.
    carried
        More that goes on from step to step; from ``%of.again`` on.
    """
    return [
        f"{of}:",
        f"%{of}.i = phi i64 [{start}], [%{of}.end, %{of}.again]",
        *carried,
        f"%{of}.end = add i64 %{of}.i, {step}",
        f"%{of}.fits = icmp sle i64 %{of}.end, %length",
        f"br i1 %{of}.fits, label %{of}.begin, label %{then}",
        f"{of}.begin:",
        *lines,
        f"br label %{of}.again",
        f"{of}.again:",
        f"br label %{of}",
    ]


def load(
    name: str, kind: str, base: str, place: str | int, lanes: int = 1, longer: str | None = None
) -> list[str]:
    """Return what reads a number at a place after an address, or so many, made longer if that is another kind."""
    short = name if longer in (None, kind) else f"{name}.short"
    lines = [
        f"{name}.at = getelementptr {kind}, ptr {base}, i64 {place}",
        f"{short} = load {wide(kind, lanes)}, ptr {name}.at, align 4",
    ]
    if short != name:
        lines.append(f"{name} = fpext {wide(kind, lanes)} {short} to {wide(str(longer), lanes)}")
    return lines


def store(value: str, kind: str, base: str, place: str, lanes: int = 1) -> list[str]:
    """Return what writes a number, or so many, at a place after an address."""
    return [
        f"{value}.to = getelementptr {kind}, ptr {base}, i64 {place}",
        f"store {wide(kind, lanes)} {value}, ptr {value}.to, align 4",
    ]


def spread(name: str, kind: str, value: str, lanes: int) -> list[str]:
    """Return what makes so many of a number."""
    of = wide(kind, lanes)
    if lanes == 1:
        return [f"{name} = bitcast {kind} {value} to {kind}"]
    return [
        f"{name}.first = insertelement {of} poison, {kind} {value}, i32 0",
        f"{name} = shufflevector {of} {name}.first, {of} poison, <{lanes} x i32> zeroinitializer",
    ]


def wide(kind: str, lanes: int) -> str:
    """Return the type of so many numbers of a kind."""
    return f"<{lanes} x {kind}>" if lanes > 1 else kind
