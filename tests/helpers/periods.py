"""Periodic sides of rectangles."""

from mosaicdd import Periodic

PAIRS = {"x": ("left", "right"), "y": ("bottom", "top")}
AXES = ("x", "y", "xy")


def periodic(axes):
    """Return periodic sides along some axes."""
    return {side: Periodic() for axis in axes for side in PAIRS[axis]}
