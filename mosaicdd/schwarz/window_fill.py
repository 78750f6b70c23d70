"""The fill of a window: of the field, a rank computes what lies in both its block and the window."""

from collections.abc import Iterator

from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.window import Window
from mosaicdd.schwarz.fill import Strip
from mosaicdd.schwarz.method import Method


class WindowFill:
    """Predicts the values at the nodes of a window that a block owns.

    Parameters
    ----------
    method
        Whose block and local solver are used.
    """

    def __init__(self, method: Method, window: Window):
        part = window.part_of(method.block)
        self._window = window
        self._fill = None if part is None else method.plan_fill(part)

    def strips(self, v: Interface) -> Iterator[Strip]:
        """Yield the wanted part of the field, as `Fill.strips`; nothing on a rank without any."""
        if self._fill is None:
            return
        for strip in self._fill.strips(v.part(self._fill.block)):
            place = self._window.clip(strip.place)
            if place[0].stop > 0:
                inner = tuple(
                    slice(own.start + part.start - whole.start, own.start + part.stop - whole.start)
                    for own, part, whole in zip(strip.inner, place, strip.place, strict=True)
                )
                yield Strip(strip.values, inner, place)
