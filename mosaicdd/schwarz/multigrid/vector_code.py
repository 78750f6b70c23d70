"""Many sums of products in one call of code that LLVM makes for this processor, where llvmlite is installed.

A sum by torch is a call per product, which reads and writes the result each time: in the caches a cycle takes twice
as long that way, and on small levels calls are all that it takes. Here a result stays in registers until its last
product. It is the same number: products are added in the same order, each with one rounding where the processor can.
"""

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

_BYTES = 32  # of a register
_UNROLLED = 4  # registers at once, so that no product waits for the one before
# Of a row, addresses and numbers: of the result, base, scale, and what differences are from (0 for none); how many
# products, and how many numbers in a stretch. After these come the two factors of each product.
HEAD = 6


@cache
def compiled(itemsize: int) -> Callable[[np.ndarray], None] | None:
    """Return what computes the sums of a table, ``(sums, numbers)`` int64, see `HEAD`; None without llvmlite.

    ``itemsize``: 4 for sums of float32, 8 for those of float64.

    Rows are as long as that of the sum with most products; what a row has beyond its own is not read.
    """
    try:
        import llvmlite.binding as llvm
    except ImportError:
        return None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(_text(itemsize))
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    address = engine.get_function_address("sums")
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)

    def run(table: np.ndarray, kept: object = engine) -> None:
        """Compute them; the code lives as long as its engine."""
        call(table.ctypes.data, *table.shape)

    return run


def _text(itemsize: int) -> str:
    """Return the function in LLVM's language."""
    scalar = {4: "float", 8: "double"}[itemsize]
    numbers = ["ptr %out", "ptr %base", "ptr %scale", "ptr %own", "i64 %count", "i64 %length"]
    head = []
    for place, number in enumerate(numbers):
        kind, name = number.split()
        head.append(f"{name}.at = getelementptr i64, ptr %row, i64 {place}")
        head.append(f"{name} = load {kind}, ptr {name}.at")
    lines = [
        "define void @sums(ptr %table, i64 %rows, i64 %width) {",
        "entry:",
        "br label %each",
        "each:",
        "%r = phi i64 [0, %entry], [%r.next, %ended]",
        "%there = icmp slt i64 %r, %rows",
        "br i1 %there, label %one, label %exit",
        "exit:",
        "ret void",
        "one:",
        "%before = mul i64 %r, %width",
        "%row = getelementptr i64, ptr %table, i64 %before",
        *head,
        f"%factors = getelementptr i64, ptr %row, i64 {HEAD}",
        "%has.base = icmp ne ptr %base, null",
        "%has.scale = icmp ne ptr %scale, null",
        "%has.own = icmp ne ptr %own, null",
        "br label %wide",
        *_loop("wide", scalar, _BYTES // itemsize, _UNROLLED, "[0, %one]", "last"),
        *_loop("last", scalar, 1, 1, "[%wide.i, %wide]", "ended"),
        "ended:",
        "%r.next = add i64 %r, 1",
        "br label %each",
        "}",
    ]
    return "\n".join(lines)


def _loop(of: str, scalar: str, lanes: int, unrolled: int, first: str, then: str) -> list[str]:
    """Return a loop over a stretch, with so many registers of so many lanes at once, as far as these fit.

    Parameters
    ----------
    of, then
        Labels: of the loop, and of what comes after it.
    scalar
        What numbers are called.
    first
        Where it begins.
    """
    kind, zero = (f"<{lanes} x {scalar}>", "zeroinitializer") if lanes > 1 else (scalar, "0.0")
    registers = range(unrolled)

    def load(name: str, base: str) -> list[str]:
        lines = []
        for u in registers:
            at = f"%{of}.{name}{u}.at"
            lines.append(f"{at} = getelementptr {scalar}, ptr {base}, i64 %{of}.i{u}")
            lines.append(f"%{of}.{name}{u} = load {kind}, ptr {at}, align 4")
        return lines

    def each(line: str) -> list[str]:
        names = {"of": of, "scalar": scalar, "kind": kind, "zero": zero}
        return [line.format(u=u, **names) for u in registers]

    return [
        f"{of}:",
        f"%{of}.i = phi i64 {first}, [%{of}.end, %{of}.store]",
        f"%{of}.end = add i64 %{of}.i, {lanes * unrolled}",
        f"%{of}.fits = icmp sle i64 %{of}.end, %length",
        f"br i1 %{of}.fits, label %{of}.begin, label %{then}",
        f"{of}.begin:",
        *(f"%{of}.i{u} = add i64 %{of}.i, {u * lanes}" for u in registers),
        f"br i1 %has.base, label %{of}.based, label %{of}.from",
        f"{of}.based:",
        *load("base", "%base"),
        f"br label %{of}.from",
        f"{of}.from:",
        *each("%{of}.sum{u} = phi {kind} [{zero}, %{of}.begin], [%{of}.base{u}, %{of}.based]"),
        f"br i1 %has.own, label %{of}.owned, label %{of}.products",
        f"{of}.owned:",
        *load("own", "%own"),
        f"br label %{of}.products",
        f"{of}.products:",
        f"%{of}.j = phi i64 [0, %{of}.from], [0, %{of}.owned], [%{of}.next, %{of}.add]",
        *each(
            "%{of}.so{u} = phi {kind} [%{of}.sum{u}, %{of}.from], [%{of}.sum{u}, %{of}.owned], "
            "[%{of}.more{u}, %{of}.add]"
        ),
        *each(
            "%{of}.mine{u} = phi {kind} [{zero}, %{of}.from], [%{of}.own{u}, %{of}.owned], "
            "[%{of}.mine{u}, %{of}.add]"
        ),
        f"%{of}.some = icmp slt i64 %{of}.j, %count",
        f"br i1 %{of}.some, label %{of}.product, label %{of}.sum",
        f"{of}.product:",
        f"%{of}.place = shl i64 %{of}.j, 1",
        f"%{of}.a.at = getelementptr i64, ptr %factors, i64 %{of}.place",
        f"%{of}.b.at = getelementptr i64, ptr %{of}.a.at, i64 1",
        f"%{of}.a = load ptr, ptr %{of}.a.at",
        f"%{of}.b = load ptr, ptr %{of}.b.at",
        *load("a", f"%{of}.a"),
        *load("b", f"%{of}.b"),
        f"br i1 %has.own, label %{of}.differ, label %{of}.add",
        f"{of}.differ:",
        *each("%{of}.d{u} = fsub {kind} %{of}.mine{u}, %{of}.b{u}"),
        f"br label %{of}.add",
        f"{of}.add:",
        *each("%{of}.f{u} = phi {kind} [%{of}.b{u}, %{of}.product], [%{of}.d{u}, %{of}.differ]"),
        *each("%{of}.ab{u} = fmul contract {kind} %{of}.a{u}, %{of}.f{u}"),
        *each("%{of}.more{u} = fadd contract {kind} %{of}.so{u}, %{of}.ab{u}"),
        f"%{of}.next = add i64 %{of}.j, 1",
        f"br label %{of}.products",
        f"{of}.sum:",
        f"br i1 %has.scale, label %{of}.scaled, label %{of}.store",
        f"{of}.scaled:",
        *load("scale", "%scale"),
        *each("%{of}.times{u} = fmul {kind} %{of}.so{u}, %{of}.scale{u}"),
        f"br label %{of}.store",
        f"{of}.store:",
        *each("%{of}.out{u} = phi {kind} [%{of}.so{u}, %{of}.sum], [%{of}.times{u}, %{of}.scaled]"),
        *each("%{of}.to{u} = getelementptr {scalar}, ptr %out, i64 %{of}.i{u}"),
        *each("store {kind} %{of}.out{u}, ptr %{of}.to{u}, align 4"),
        f"br label %{of}",
    ]
