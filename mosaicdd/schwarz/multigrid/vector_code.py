"""Many sums of products in one call of code that LLVM makes for this processor, where llvmlite is installed.

A sum by torch is a call per product, which reads and writes the result each time: in the caches a cycle takes twice
as long that way, and on small levels calls are all that it takes. Here a result stays in registers until its last
product. It is the same number: products are added in the same order, each with one rounding where the processor can.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch

_BYTES = 32  # of a register
_UNROLLED = 4  # registers at once, so that no product waits for the one before
# Of a row, addresses and numbers: of the result, base, scale, and what differences are from (0 for none); how many
# products, and how many numbers in a stretch. After these come the two factors of each product.
HEAD = 6

NAMES = {torch.float32: "float", torch.float64: "double"}


class Kind(NamedTuple):
    """What sums are of.

    Parameters
    ----------
    factor
        Of the first factors of products; shorter ones than values are made as long.
    value
        Of all other numbers that are read, and of what is computed.
    out
        Of results.
    left
        Whether products are subtracted, and the scale is one number, whose bits are in the row.
    """

    factor: torch.dtype
    value: torch.dtype
    out: torch.dtype
    left: bool = False


@cache
def compiled(kind: Kind) -> Callable[..., None] | None:
    """Return what computes the sums of a table, ``(sums, numbers)`` int64, see `HEAD`; None without llvmlite.

    It takes the table's address and shape. Rows are as long as that of the sum with most products; what a row has
    beyond its own is not read.
    """
    return function("sums", _text(kind), "pii")


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


def _text(kind: Kind) -> str:
    """Return the function in LLVM's language."""
    scale = "double" if kind.left else "ptr"
    numbers = ["ptr %out", "ptr %base", f"{scale} %scale", "ptr %own", "i64 %count", "i64 %length"]
    head = []
    for place, number in enumerate(numbers):
        of, name = number.split()
        head.append(f"{name}.at = getelementptr i64, ptr %row, i64 {place}")
        head.append(f"{name} = load {of}, ptr {name}.at")
    lanes = _BYTES // max(kind.value.itemsize, kind.factor.itemsize)
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
        f"%has.scale = {'icmp ne i1 true, false' if kind.left else 'icmp ne ptr %scale, null'}",
        "%has.own = icmp ne ptr %own, null",
        "br label %wide",
        *_loop("wide", kind, lanes, _UNROLLED, "[0, %one]", "last"),
        *_loop("last", kind, 1, 1, "[%wide.i, %wide]", "ended"),
        "ended:",
        "%r.next = add i64 %r, 1",
        "br label %each",
        "}",
    ]
    return "\n".join(lines)


def _loop(of: str, kind: Kind, lanes: int, unrolled: int, first: str, then: str) -> list[str]:
    """Return a loop over a stretch, with so many registers of so many lanes at once, as far as these fit.

    Parameters
    ----------
    of, then
        Labels: of the loop, and of what comes after it.
    first
        Where it begins.
    """
    value, registers = _wide(kind.value, lanes), range(unrolled)
    zero = "zeroinitializer" if lanes > 1 else "0.0"

    def load(name: str, base: str, dtype: torch.dtype = kind.value) -> list[str]:
        lines = []
        for u in registers:
            at = f"%{of}.{name}{u}.at"
            lines.append(f"{at} = getelementptr {NAMES[dtype]}, ptr {base}, i64 %{of}.i{u}")
            read = f"%{of}.{name}{u}" + (".read" if dtype != kind.value else "")
            lines.append(f"{read} = load {_wide(dtype, lanes)}, ptr {at}, align 4")
            if dtype != kind.value:
                lines.append(f"%{of}.{name}{u} = fpext {_wide(dtype, lanes)} {read} to {value}")
        return lines

    def each(line: str) -> list[str]:
        names = {"of": of, "value": value, "zero": zero, "out": _wide(kind.out, lanes)}
        names["scalar"] = NAMES[kind.out]
        return [line.format(u=u, **names) for u in registers]

    splat, scaling = [], load("scale", "%scale") if not kind.left else []
    if kind.left and lanes > 1:
        splat = [
            f"%{of}.first = insertelement {value} poison, double %scale, i32 0",
            f"%{of}.scale = shufflevector {value} %{of}.first, {value} poison, <{lanes} x i32> zeroinitializer",
        ]
    scale = "%{of}.scale{u}" if not kind.left else "%{of}.scale" if lanes > 1 else "%scale"
    final, narrowed = "%{of}.out{u}", []
    if kind.out != kind.value:
        narrowed = each("%{of}.short{u} = fptrunc {value} %{of}.out{u} to {out}")
        final = "%{of}.short{u}"
    differ = "%{of}.b{u}, %{of}.mine{u}" if kind.left else "%{of}.mine{u}, %{of}.b{u}"
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
        *each("%{of}.sum{u} = phi {value} [{zero}, %{of}.begin], [%{of}.base{u}, %{of}.based]"),
        f"br i1 %has.own, label %{of}.owned, label %{of}.products",
        f"{of}.owned:",
        *load("own", "%own"),
        f"br label %{of}.products",
        f"{of}.products:",
        f"%{of}.j = phi i64 [0, %{of}.from], [0, %{of}.owned], [%{of}.next, %{of}.add]",
        *each(
            "%{of}.so{u} = phi {value} [%{of}.sum{u}, %{of}.from], [%{of}.sum{u}, %{of}.owned], "
            "[%{of}.more{u}, %{of}.add]"
        ),
        *each(
            "%{of}.mine{u} = phi {value} [{zero}, %{of}.from], [%{of}.own{u}, %{of}.owned], "
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
        *load("a", f"%{of}.a", kind.factor),
        *load("b", f"%{of}.b"),
        f"br i1 %has.own, label %{of}.differ, label %{of}.add",
        f"{of}.differ:",
        *each(f"%{{of}}.d{{u}} = fsub {{value}} {differ}"),
        f"br label %{of}.add",
        f"{of}.add:",
        *each("%{of}.f{u} = phi {value} [%{of}.b{u}, %{of}.product], [%{of}.d{u}, %{of}.differ]"),
        *each("%{of}.ab{u} = fmul contract {value} %{of}.a{u}, %{of}.f{u}"),
        *each("%{of}.more{u} = fadd contract {value} %{of}.so{u}, %{of}.ab{u}"),
        f"%{of}.next = add i64 %{of}.j, 1",
        f"br label %{of}.products",
        f"{of}.sum:",
        f"br i1 %has.scale, label %{of}.scaled, label %{of}.store",
        f"{of}.scaled:",
        *scaling,
        *splat,
        *each(f"%{{of}}.times{{u}} = fmul {{value}} %{{of}}.so{{u}}, {scale}"),
        f"br label %{of}.store",
        f"{of}.store:",
        *each(
            "%{of}.out{u} = phi {value} [%{of}.so{u}, %{of}.sum], [%{of}.times{u}, %{of}.scaled]"
        ),
        *narrowed,
        *each("%{of}.to{u} = getelementptr {scalar}, ptr %out, i64 %{of}.i{u}"),
        *each(f"store {{out}} {final}, ptr %{{of}}.to{{u}}, align 4"),
        f"br label %{of}",
    ]


def _wide(dtype: torch.dtype, lanes: int) -> str:
    return f"<{lanes} x {NAMES[dtype]}>" if lanes > 1 else NAMES[dtype]
