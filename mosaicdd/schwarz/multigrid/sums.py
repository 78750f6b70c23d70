"""Sums of products over the nodes of a class: what every step of a cycle is made of, planned once.

A sum by torch is a call per product, which reads and writes the result each time: in the caches a cycle takes twice
as long that way, and on small levels calls are all that it takes. In compiled code a result stays in registers until its
last product. It is the same number: products are added in the same order, each with one rounding where the processor can.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from mosaicdd.schwarz.multigrid.llvm import (
    NAMES,
    along,
    function,
    is_plain,
    load,
    over_rows,
    spread,
    store,
    wide,
)

_BYTES = 32  # of a register
_UNROLLED = 4  # registers at once, so that no product waits for the one before
# Of a row, addresses and numbers: of the result, base, scale, and what differences are from (0 for none); how many
# products, and how many numbers in a stretch; what `Left` multiplies its base by. After these come the two factors of each
# product.
_HEAD = 7

T = TypeVar("T")
Factors = tuple[torch.Tensor, torch.Tensor]


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
        Whether products are subtracted, and the scale is one number, whose bits are in the row, as those of the base's
        weight are.
    """

    factor: torch.dtype
    value: torch.dtype
    out: torch.dtype
    left: bool = False


@dataclass(frozen=True)
class Sum:
    """``out = (base + sum_i a_i b_i) scale``; of stretches, all of the same length.

    Parameters
    ----------
    base, scale
        None for 0 and for 1. The base may be the result itself.
    own
        From which each ``b_i`` is subtracted first; None if it is not.
    """

    out: torch.Tensor
    base: torch.Tensor | None
    products: list[Factors]
    scale: torch.Tensor | None = None
    own: torch.Tensor | None = None

    @property
    def kind(self) -> Kind:
        """What numbers it is of."""
        return Kind(self.out.dtype, self.out.dtype, self.out.dtype)

    @property
    def ends(self) -> tuple[torch.Tensor | None, ...]:
        """What a row begins with."""
        return self.out, self.base, self.scale, self.own

    def __call__(self) -> None:
        """Compute it."""
        out, so_far = self.out, self.base
        for first, second in self.products:
            factor = second if self.own is None else self.own - second
            if so_far is None:
                torch.mul(first, factor, out=out)
            else:
                torch.addcmul(so_far, first, factor, out=out)
            so_far = out
        if so_far is not None and self.scale is not None:
            torch.mul(so_far, self.scale, out=out)
        elif so_far is not None and so_far is not out:
            out.copy_(so_far)


@dataclass(frozen=True)
class Left:
    """``out = (weight base - sum_i a_i (own - b_i)) scale``, what equations leave, computed as base, own and ``b_i`` are.

    The scale is one number, that of a call.
    """

    out: torch.Tensor
    base: torch.Tensor
    products: list[Factors]
    own: torch.Tensor
    weight: float

    @property
    def kind(self) -> Kind:
        """What numbers it is of; all first factors are of one."""
        return Kind(self.products[0][0].dtype, self.base.dtype, self.out.dtype, left=True)

    @property
    def ends(self) -> tuple[torch.Tensor | None, ...]:
        """What a row begins with."""
        return self.out, self.base, None, self.own

    def __call__(self, scale: float) -> None:
        """Compute it."""
        left = self.base * self.weight
        for a, b in self.products:
            left.addcmul_(a, b - self.own)
        torch.mul(left, scale, out=self.out)


def in_turn(stages: Iterable[Sequence[T]]) -> list[T]:
    """Return what is to be done of several stages, each of a part per stretch, in an order for the cache.

    A part comes after those of the stage before in its own stretch and the ones beside it, and before the rest of
    that stage: while what these have read and written is in the cache.
    """
    parts = [
        (number + stage, stage, part)
        for stage, of_stage in enumerate(stages)
        for number, part in enumerate(of_stage)
    ]
    return [part for _, _, part in sorted(parts, key=lambda entry: entry[:2])]


def planned(sums: Sequence[Sum | Left]) -> Callable[..., None]:
    """Return what computes sums in their order: compiled code where there is any, and torch's calls elsewhere.

    It is called without a word, or, where they are `Left`, with their scale.
    """

    def by_torch(*scale: float) -> None:
        for each in sums:
            each(*scale)

    kinds = {each.kind for each in sums}
    run = compiled(*kinds) if len(kinds) == 1 and all(map(_is_plain, sums)) else None
    if run is None:
        return by_torch
    table = np.zeros((len(sums), _HEAD + 2 * max((len(s.products) for s in sums), default=0)), int)
    for row, each in zip(table, sums, strict=True):
        row[:4] = [0 if end is None else end.data_ptr() for end in each.ends]
        row[4:6] = len(each.products), len(each.out)
        if isinstance(each, Left):
            row[6] = np.float64(each.weight).view(np.int64)
        factors = [factor.data_ptr() for product in each.products for factor in product]
        row[_HEAD : _HEAD + len(factors)] = factors

    where = table.ctypes.data, *table.shape

    def by_code(*scale: float, kept: object = (table, sums)) -> None:
        """Compute them; their numbers stay where they are as long as they are kept."""
        if scale:
            table[:, 2] = np.float64(*scale).view(np.int64)
        run(*where)

    return by_code


def at_addresses(
    out: np.ndarray, base: np.ndarray, scale: np.ndarray, factors: list[np.ndarray], length: int
) -> np.ndarray:
    """Return rows of a table for `compiled`, of sums whose numbers lie at some addresses, ``(sums,)`` each.

    A base, a scale and factors that are 0 are none.
    """
    head = np.zeros((len(out), _HEAD), int)
    counts = np.sum([at != 0 for at in factors[::2]], axis=0)
    for column, numbers in ((0, out), (1, base), (2, scale), (4, counts), (5, length)):
        head[:, column] = numbers
    return np.concatenate([head, np.stack(factors, axis=1)], axis=1)


def _is_plain(each: Sum | Left) -> bool:
    """Say whether compiled code takes all that a sum is made of."""
    kind = each.kind
    out, *ends = each.ends
    parts = [(out, kind.out), *((end, kind.value) for end in ends)]
    for a, b in each.products:
        parts += (a, kind.factor), (b, kind.value)
    return is_plain(parts)


@cache
def compiled(kind: Kind) -> Callable[..., None] | None:
    """Return what computes the sums of a table, ``(sums, numbers)`` int64, see `_HEAD`; None without llvmlite.

    It takes the table's address and shape. Rows are as long as that of the sum with most products; what a row has
    beyond its own is not read.
    """
    return function("sums", _text(kind), "pii")


def _text(kind: Kind) -> str:
    """Return the function in LLVM's language."""
    scale = "double" if kind.left else "ptr"
    columns = ["ptr out", "ptr base", f"{scale} scale", "ptr own", "i64 count", "i64 length"]
    columns += ["double weight"] if kind.left else []
    lanes = _BYTES // max(kind.value.itemsize, kind.factor.itemsize)
    lines = [
        f"%factors = getelementptr i64, ptr %row.at, i64 {_HEAD}",
        "%has.base = icmp ne ptr %base, null",
        f"%has.scale = {'icmp ne i1 true, false' if kind.left else 'icmp ne ptr %scale, null'}",
        "%has.own = icmp ne ptr %own, null",
        "br label %wide",
        *_loop("wide", kind, lanes, _UNROLLED, "0, %row", "last"),
        *_loop("last", kind, 1, 1, "%wide.i, %wide", "ended"),
    ]
    return over_rows("sums(ptr %table, i64 %rows, i64 %width)", columns, lines, width="%width")


def _loop(of: str, kind: Kind, lanes: int, unrolled: int, start: str, then: str) -> list[str]:
    """Return a loop over a stretch with so many registers of so many lanes at once, see `along`."""
    value, registers = wide(NAMES[kind.value], lanes), range(unrolled)
    zero = "zeroinitializer" if lanes > 1 else "0.0"

    def read(name: str, base: str, dtype: torch.dtype = kind.value) -> list[str]:
        return [
            line
            for u in registers
            for line in load(
                f"%{of}.{name}{u}", NAMES[dtype], base, f"%{of}.i{u}", lanes, NAMES[kind.value]
            )
        ]

    def each(line: str) -> list[str]:
        return [
            line.format(u=u, of=of, value=value, zero=zero, out=wide(NAMES[kind.out], lanes))
            for u in registers
        ]

    scaling, scale = read("scale", "%scale") if not kind.left else [], "%{of}.scale{u}"
    if kind.left:
        scaling, scale = spread(f"%{of}.scale", NAMES[kind.value], "%scale", lanes), "%{of}.scale"
    based, weighing = "base", []
    if kind.left:
        based, weighing = "weighed", spread(f"%{of}.weight", NAMES[kind.value], "%weight", lanes)
        weighing += each("%{of}.weighed{u} = fmul {value} %{of}.base{u}, %{of}.weight")
    final, narrowed = "out", []
    if kind.out != kind.value:
        narrowed = each("%{of}.short{u} = fptrunc {value} %{of}.out{u} to {out}")
        final = "short"
    differ = "%{of}.b{u}, %{of}.mine{u}" if kind.left else "%{of}.mine{u}, %{of}.b{u}"
    lines = [
        *(f"%{of}.i{u} = add i64 %{of}.i, {u * lanes}" for u in registers),
        f"br i1 %has.base, label %{of}.based, label %{of}.from",
        f"{of}.based:",
        *read("base", "%base"),
        *weighing,
        f"br label %{of}.from",
        f"{of}.from:",
        *each(
            "%{of}.sum{u} = phi {value} [{zero}, %{of}.begin], "
            f"[%{{of}}.{based}{{u}}, %{{of}}.based]"
        ),
        f"br i1 %has.own, label %{of}.owned, label %{of}.products",
        f"{of}.owned:",
        *read("own", "%own"),
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
        f"%{of}.after = or i64 %{of}.place, 1",
        *load(f"%{of}.a", "ptr", "%factors", f"%{of}.place"),
        *load(f"%{of}.b", "ptr", "%factors", f"%{of}.after"),
        *read("a", f"%{of}.a", kind.factor),
        *read("b", f"%{of}.b"),
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
        *each(f"%{{of}}.times{{u}} = fmul {{value}} %{{of}}.so{{u}}, {scale}"),
        f"br label %{of}.store",
        f"{of}.store:",
        *each(
            "%{of}.out{u} = phi {value} [%{of}.so{u}, %{of}.sum], [%{of}.times{u}, %{of}.scaled]"
        ),
        *narrowed,
        *(
            line
            for u in registers
            for line in store(f"%{of}.{final}{u}", NAMES[kind.out], "%out", f"%{of}.i{u}", lanes)
        ),
    ]
    return along(of, lanes * unrolled, start, then, lines)
