"""Boundary conditions on named parts of a domain's outline."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mosaicdd.axes import letters, others
from mosaicdd.problems.fields.evaluated import expression_at
from mosaicdd.problems.fields.given import is_one_each, shape_of
from mosaicdd.problems.shapes.outline import OutlinePiece, name_of_side, side_names, sides
from mosaicdd.problems.sides.conditions import Condition, Neumann
from mosaicdd.settings import concerning, unknown
from mosaicdd.unsupported import Unsupported

_NAME = re.compile(r"(\w+)(?:\[([^\[\]]*:[^\[\]]*)\])?")
_OUTLINE = re.compile(r"outline|outer|hole[1-9]\d*")
_OWN_NAME = re.compile(r"\w[\w .-]*")
_CHOSEN = re.compile(rf"({_OUTLINE.pattern})\[(.*)\]")
EXAMPLES = {2: "0:0.5", 3: "0:0.5, :0.3"}
"""Of parts of sides, by the number of axes of the domain."""

Intervals = tuple[tuple[float, float], ...]
"""From one coordinate to another along each axis of a side, in units of domain length; empty for all of it."""


def is_outline(name: str) -> bool:
    """Say whether a name is that of a shape's outline, no side of the rectangle."""
    return _OUTLINE.fullmatch(name) is not None


@dataclass(frozen=True)
class SidePart:
    """A boundary condition and the part of the outline where it holds."""

    name: str  # of the piece
    condition: Condition
    along: Intervals = ()  # of a side, in the order of the axes
    where: str = ""  # an expression in the coordinates, true where it holds, on an outline
    noun: str = "the side"
    given: str = field(default="", compare=False)  # the name that it was read from

    @cached_property
    def whole(self) -> bool:
        """Whether the part is the whole side, or outline."""
        return not (self.along or self.where)

    @cached_property
    def inside(self) -> bool:
        """Whether the condition holds inside of the domain, on no outline."""
        return self.condition.inside

    @property
    def called(self) -> str:
        """The part's name in messages."""
        return f"what is held as {self}" if self.inside else f"{self.noun} {self}"

    @cached_property
    def values(self) -> Any:
        """The condition's values; of a periodic side its jump."""
        return self.condition.values

    @cached_property
    def alpha(self) -> Any:
        """The coefficient of a Robin condition as given, else 0."""
        return self.condition.exchange

    @property
    def each(self) -> list[Any]:
        """Functions and texts of each problem in a list; other values alone."""
        return [*self.values] if is_one_each(self.values) else [self.values]

    @property
    def texts(self) -> list[str]:
        """The expressions among the values."""
        return [values for values in self.each if isinstance(values, str)]

    def problems(self, axes: int) -> int:
        """Return the number of problems that values in a domain of ``axes`` axes are for."""
        shape = (len(self.each), *shape_of(self.values))
        return shape[1] if len(shape) - 1 == (2 if self.inside else axes) else shape[0]

    @property
    def exchanging(self) -> "SidePart":
        """The same part with ``alpha`` as its values."""
        return dataclasses.replace(
            self, condition=Neumann(self.alpha), noun=f"alpha of {self.noun}"
        )

    def __str__(self) -> str:
        if self.where:
            return f"{self.name}[{self.where}]"
        if self.whole:
            return self.name
        # The fewest digits that are read as a number, nothing where the side ends.
        texts = [[repr(end).removesuffix(".0") for end in ends] for ends in self.along[::-1]]
        ends = ", ".join(map(":".join, texts))
        return f"{self.name}[{re.sub('-?inf', '', ends)}]"

    @property
    def as_given(self) -> str:
        """The part's name as given."""
        return str(self) if self.whole else self.given or str(self)


def part_of_name(name: str, condition: Condition, axes: int = 2) -> SidePart:
    """Parse the name of a side or an outline, or of a part; else `ValueError`.

    What is held inside has any other name.
    """
    if getattr(condition, "inside", False):
        if _OWN_NAME.fullmatch(str(name)) is None or name in side_names(3) or is_outline(name):
            raise ValueError(
                f"what is held inside of the domain has a name of its own, as river, no side's: got {name!r}"
            )
        return SidePart(name, condition)
    chosen = _CHOSEN.fullmatch(str(name))
    if chosen is not None:
        where = expression_at(chosen[2].strip(), axes)
        return SidePart(chosen[1], condition, where=where.text, given=str(name))
    match = _NAME.fullmatch(str(name))
    whole = match is not None and match[2] is None
    if match is None or not (match[1] in side_names(axes) or (whole and is_outline(match[1]))):
        raise ValueError(
            unknown(
                "side",
                name,
                (*side_names(axes), "outline", "outer", "hole1", "hole2"),
                f", .. (the last four of a domain that is no rectangle), and parts as left[{EXAMPLES[axes]}], outline[x > 1]",
            )
        )
    along = () if whole else _intervals(match[1], match[2], axes)
    return SidePart(match[1], condition, along, given=str(name))


def _intervals(side: str, text: str, axes: int) -> Intervals:
    """Parse the intervals of a part of a side; else raise `ValueError`."""
    along, name = others(side_names(axes)[side][0], axes), f"{side}[{text}]"
    parts = text.split(",")
    if len(parts) != len(along):
        names = " and ".join(letters(axes)[axis] for axis in reversed(along))
        raise ValueError(
            f"the part {name} of a side along {names} needs {len(along)} intervals, got {len(parts)}: as in "
            f"{side}[{EXAMPLES[axes]}], where : alone is all"
        )
    intervals = []
    for part in reversed(parts):
        low, _, high = part.partition(":")
        try:
            ends = float(low.strip() or -math.inf), float(high.strip() or math.inf)
        except ValueError:
            ends = math.nan, math.nan
        if not ends[0] < ends[1]:
            raise ValueError(f"the part {name} must go from a number to a larger one")
        intervals.append(ends)
    return tuple(intervals) if np.isfinite(intervals).any() else ()


def common(intervals: Intervals, other: Intervals) -> Intervals | None:
    """Return the intersection of two parts of a side; None if it is empty."""
    if not (intervals and other):
        return intervals or other
    both = zip(intervals, other, strict=True)
    ends = tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in both)
    return ends if all(low < high for low, high in ends) else None


@concerning("sides")
def require_conditions(parts: Sequence[SidePart], axes: int = 2) -> None:
    """Raise unless parts have conditions, do not overlap, and periodic sides are pairs."""
    for part in parts:
        if not isinstance(part.condition, Condition):
            raise TypeError(
                f"the side {part} must be Dirichlet, Neumann, Robin or Periodic, got "
                f"{type(part.condition).__name__}"
            )
    _require_pairs(parts, axes)
    for i, part in enumerate(parts):
        for before in parts[:i]:
            # A part comes before the whole.
            alike = part.name == before.name and part.whole == before.whole and not part.where
            if alike and common(part.along, before.along) is not None:
                raise ValueError(f"the sides {before} and {part} overlap; give every part once")


def _require_pairs(parts: Sequence[SidePart], axes: int) -> None:
    periodic = [part for part in parts if part.condition.periodic]
    for part in periodic:
        if not part.whole:
            raise ValueError(f"{part} is periodic: a side is so as a whole, or not at all")
    jumps = {part.name: part.values for part in periodic if not is_outline(part.name)}
    for axis, end in sides(axes):
        have, lack = (name_of_side((axis, which), axes) for which in (end, 1 - end))
        if have not in jumps:
            continue
        if lack not in jumps:
            raise ValueError(
                f"the side {have} is periodic, the side {lack} is not; give both of the pair"
            )
        if jumps[have] != jumps[lack]:
            raise ValueError(
                f"the side {have} jumps by {jumps[have]:g}, the side {lack} by {jumps[lack]:g}; "
                "give both of the pair the same: what the solution is larger by at the higher side"
            )
    for part in parts:
        if part.name in jumps and not part.condition.periodic:
            raise ValueError(f"the side {part.name} is periodic, so nothing else holds on {part}")


def part_on_outline(parts: Sequence[SidePart], name: str) -> SidePart | None:
    """Return the condition on an outline, or on a part of one, if any."""
    named = {str(part): part for part in parts}
    return named.get(name, named.get("outline"))


def require_outlines(parts: Sequence[SidePart], names: Sequence[str]) -> None:
    """Raise `ValueError` unless a domain has all outlines that conditions are for.

    ``names``: of all that it has, besides ``outline`` for all; empty for a rectangle.
    """
    for part in parts:
        if is_outline(part.name) and part.name not in ("outline", *names):
            has = f"its outlines are {', '.join(names)}" if names else "it is a rectangle"
            raise ValueError(f"the domain has no outline {part.name}: {has}")


@concerning("sides")
def require_reached(
    parts: Sequence[SidePart], pieces: Mapping[str, OutlinePiece], outlines: Sequence[str]
) -> None:
    """Raise `ValueError` where an outline with another condition replaces a side.

    ``pieces``: what a shape has of the sides; ``outlines``: the names of the outlines.
    """
    on_outlines = [part_on_outline(parts, name) for name in outlines]
    for part in parts:
        replaced = part.name in pieces and pieces[part.name].replaced
        if replaced and not all(
            other and part.condition == other.condition for other in on_outlines
        ):
            raise ValueError(
                f"the side {part}: the outline of the domain runs along this side, and what is said "
                f"of the outline holds there; name {' or '.join(outlines)} in its place"
            )


@concerning("sides")
def require_no_periodic_outline(parts: Sequence[SidePart]) -> None:
    """Raise `Unsupported` where something else than a side of the rectangle is periodic."""
    for part in parts:
        if is_outline(part.name) and part.condition.periodic:
            raise Unsupported(
                f"the side {part} is periodic: an outline has a value, a flux or an exchange, only the "
                "sides of the rectangle may be periodic; name them"
            )
