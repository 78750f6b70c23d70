"""Problems of `drawn_problems` with other data, along random directions of what gradients are by."""

from dataclasses import replace

import numpy as np


def varied(p, key, change, s):
    """Return a drawn problem with more of a field, or of what a condition of a side is given."""
    if key in p.fields:
        return replace(p, fields=p.fields | {key: np.asarray(p.fields[key]) + s * change})
    side, number, of = key
    each = [*p.sides[side]]
    each[number] = replace(each[number], **{of: getattr(each[number], of) + s * change})
    return replace(p, sides=p.sides | {side: each})


def directions(p, rng):
    """Yield what gradients call data, what `varied` does, and changes: of fields by all values, of conditions by a number."""
    for name, values in p.fields.items():
        yield name, name, np.asarray(rng.uniform(0.5, 1.0, np.shape(values)) * np.abs(values))
    for side, each in p.sides.items():
        for number, c in enumerate(each):
            name = side if c.ends is None else f"{side}[{c.ends[0]!r}:{c.ends[1]!r}]"
            insulated = p.kind == "nodes" and side == "outline" and c.kind == "flux"
            if c.kind != "periodic" and not insulated:
                yield name, (side, number, "g0"), np.asarray(1.0)
            if c.kind == "exchange":
                yield f"{name}.alpha", (side, number, "alpha"), np.asarray(c.alpha)


def is_refused(p):
    """Say whether an outline exchanges between periodic sides, of which gradients are not known."""
    kinds = {c.kind for each in p.sides.values() for c in each}
    return "periodic" in kinds and any(c.kind == "exchange" for c in p.sides.get("outline", ()))
