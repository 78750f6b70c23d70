"""Random problems of domains, equations, sides and kinds of data that go together; `own_equations` has their matrices."""

from dataclasses import dataclass, field

import numpy as np
import torch

import mosaicdd as m

SIDES = {2: (("bottom", "top"), ("left", "right"))}
SIDES[3] = (("back", "front"), *SIDES[2])
WHOLE_CELLS = "rectangle", "box", "cells", "voxels", "blocks"
KINDS = (*WHOLE_CELLS, "nodes", "disk", "polygon")
_LEAST_PERIODIC = {2: 17, 3: 9}


@dataclass
class Condition:
    """What holds: ``kind`` is ``value``, ``flux``, ``exchange`` or ``periodic``; ``g = g0 + g1 x y`` at nodes."""

    kind: str
    g0: float = 0.0
    g1: float = 0.0
    alpha: float = 0.0
    ends: tuple[float, float] | None = None  # of a part of a side, in units of length

    def at(self, *places):
        return self.g0 + self.g1 * places[0] * places[1]


@dataclass
class Drawn:
    """A problem, and what it is made of."""

    kind: str
    cells: tuple[int, ...]
    steps: tuple[float, ...]
    fields: dict  # number or array by name
    sides: dict  # lists of conditions by name, the part before the rest
    inside: np.ndarray  # cells of the domain; of others than whole cells nodes
    level: np.ndarray | None = None
    held: np.ndarray | None = None
    data: dict = field(default_factory=dict)
    domain: m.Domain | None = None
    pde: str = "diffusion"

    @property
    def nodes(self):
        return tuple(n + 1 for n in self.cells)

    @property
    def problem(self):
        """The package's."""
        conditions = {}
        for name, each in self.sides.items():
            for c in each:
                part = name if c.ends is None else f"{name}[{c.ends[0]!r}:{c.ends[1]!r}]"
                conditions[part] = self.given_condition(name, c)
        if self.held is not None:
            conditions["pole"] = self.pole
        return m.Problem(self.domain, self.pde, self.given_fields, conditions)

    @property
    def given_fields(self):
        return {name: _given(v, self.data.get(name), self) for name, v in self.fields.items()}

    @property
    def pole(self):
        return m.Held(_mask_given(self.held, self.data.get("held"), self), 0.5)

    def given_condition(self, name, c):
        if c.kind == "periodic":
            return m.Periodic()
        values = c.g0
        if c.g1:
            ways = {
                "expression": f"{c.g0!r} + {c.g1!r}*x*y",
                "function": (lambda x, y: c.at(x, y))
                if len(self.cells) == 2
                else lambda x, y, z: c.at(x, y),
            }
            values = ways.get(self.data[name])
            if values is None:
                axis = next(a for a, pair in enumerate(SIDES[len(self.cells)]) if name in pair)
                along = places_of(self.nodes, self.steps)
                at = 0 if name == SIDES[len(self.cells)][axis][0] else -1
                values = np.take(c.at(*along[::-1]), at, axis)
                values = torch.from_numpy(values.copy()) if self.data[name] == "torch" else values
        kinds = {"value": m.Dirichlet, "flux": m.Neumann}
        return m.Robin(c.alpha, values) if c.kind == "exchange" else kinds[c.kind](values)

    def __str__(self):
        sides = {
            name: [c.kind + ("" if c.ends is None else " on a part") for c in each]
            for name, each in self.sides.items()
        }
        shapes = {n: self.data.get(n, "") + str(np.shape(v)) for n, v in self.fields.items()}
        return f"{self.kind} {self.cells} {shapes} {sides} held={self.held is not None}"


def places_of(nodes, steps):
    """Return the coordinates of nodes along each axis, ``(y, x)``."""
    return np.meshgrid(
        *(h * np.arange(n) for n, h in zip(nodes, steps, strict=True)), indexing="ij"
    )


def _labelled(values, drawn):
    import xarray

    axes, per_cell = "zyx"[-len(drawn.cells) :], values.shape == drawn.cells
    coords = {
        name: h * (np.arange(n) + per_cell / 2)
        for name, n, h in zip(axes, values.shape, drawn.steps, strict=True)
    }
    array = xarray.DataArray(values, dims=tuple(axes), coords=coords)
    return array.transpose(*axes[::-1])[{axes[0]: slice(None, None, -1)}]


def _given(values, way, drawn):
    """Return values as an array of another library, which says the same."""
    if way == "torch":
        return torch.from_numpy(np.array(values))
    if way == "masked":
        return np.ma.array(values)
    return _labelled(values, drawn) if way == "labelled" else values


def _mask_given(mask, way, drawn):
    return mask.astype(int) if way == "numbers" else _given(mask, way, drawn)


# Drawing


def drawn(seed, *, large=False, kind=None):
    """Draw a problem; ``large``: for two ranks at least."""
    rng = np.random.default_rng(seed)
    kind = kind or KINDS[seed % len(KINDS)]
    axes = 3 if kind in ("box", "voxels") else 2
    low, high = (16, 18) if axes == 3 else (32, 41)
    if not large:
        low, high = (5, 11) if axes == 3 else (8, 24)
    cells = tuple(int(n) for n in rng.integers(low, high, axes))
    alike = rng.random() < 0.5
    steps = (0.125,) * axes if alike else tuple(rng.uniform(0.06, 0.25, axes).tolist())
    inside, level, domain = _shape(rng, kind, cells, steps)
    result = Drawn(kind, cells, steps, {}, {}, inside, level, domain=domain)
    _draw_sides(rng, result)
    _draw_fields(rng, result)
    return result


def _shape(rng, kind, cells, steps):
    """Return cells inside, or nodes, a distance, and the domain."""
    spacing, every = steps, np.ones(cells, bool)
    if kind in ("rectangle", "box"):
        return every, None, m.Domain(cells, spacing)
    if kind == "voxels":
        mask = rng.random(cells) < rng.uniform(0.5, 0.95)
        mask[tuple(int(n) // 2 for n in cells)] = True
        return mask, None, m.Domain.from_mask(mask, spacing)
    sizes = [n * h for n, h in zip(cells, steps, strict=True)]
    if kind == "disk":
        r, (y0, x0) = rng.uniform(0.25, 0.45) * min(sizes), (0.5 * s for s in sizes)
        y0, x0 = y0 + rng.uniform(-0.04, 0.04) * sizes[0], x0 + rng.uniform(-0.04, 0.04) * sizes[1]
        distance = f"hypot(x - {x0!r}, y - {y0!r}) - {r!r}"
        y, x = places_of([n + 1 for n in cells], steps)
        level = np.hypot(x - x0, y - y0) - r
        return level < 0, level, m.Domain.from_distance(distance, cells, spacing)
    if kind == "polygon":
        corners = rng.uniform(0.36, 0.47, 5) * min(sizes)
        turn = 2 * np.pi * (np.arange(5) + rng.uniform(-0.1, 0.1, 5)) / 5
        ring = np.stack([0.5 * sizes[1] + corners * np.cos(turn), 0.5 * sizes[0] + corners * np.sin(turn)], axis=1)  # fmt: skip
        y, x = places_of([n + 1 for n in cells], steps)
        level = _distance(ring, x, y)
        domain = m.Domain.from_polygons(ring, cells=cells, spacing=spacing)
        return level < 0, level, domain
    first = [int(rng.integers(2, n // 2)) for n in cells]
    last = [int(rng.integers(a + 2, n - 1)) for a, n in zip(first, cells, strict=True)]
    if kind == "blocks":  # a polygon along grid lines
        (y0, x0), (y1, x1) = ([h * k for h, k in zip(steps, ends, strict=True)] for ends in (first, last))  # fmt: skip
        mask = np.zeros(cells, bool)
        mask[first[0] : last[0], first[1] : last[1]] = True
        ring = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
        return mask, None, m.Domain.from_polygons(ring, cells=cells, spacing=spacing)
    shape = cells if kind == "cells" else tuple(n + 1 for n in cells)
    mask = np.ones(shape, bool)
    mask[first[0] : last[0], first[1] : last[1]] = False
    if rng.random() < 0.5:  # and a corner of the rectangle
        mask[: first[0] // 2 + 1, : first[1]] = False
        mask[: max(first[0] - 2, 0), : max(first[1] - 1, 0)] &= True
    return mask, None, m.Domain.from_mask(mask, spacing, per_cell=kind == "cells")


def _distance(ring, x, y):
    """Return the signed distance to a polygon, negative inside."""
    far, crossings = np.full(x.shape, np.inf), np.zeros(x.shape, int)
    for (x0, y0), (x1, y1) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
        dx, dy = x1 - x0, y1 - y0
        t = (((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy)).clip(0.0, 1.0)
        far = np.minimum(far, np.hypot(x - x0 - t * dx, y - y0 - t * dy))
        spans = (y0 <= y) != (y1 <= y)
        crossings += spans & (x0 + (y - y0) * dx / np.where(dy == 0, 1.0, dy) < x)
    return np.where(crossings % 2 == 1, -far, far)


def _draw_condition(rng, *, varied, insulated=False, kinds=("value", "flux", "exchange")):
    kind = str(rng.choice(kinds))
    if insulated:
        return Condition("flux")
    g1 = float(rng.standard_normal()) if varied and rng.random() < 0.5 else 0.0
    return Condition(kind, float(rng.standard_normal()), g1, float(10.0 ** rng.integers(-1, 2)))


def _draw_sides(rng, p):
    axes = len(p.cells)
    outline = p.kind not in ("rectangle", "box")
    for axis, pair in enumerate(SIDES[axes]):
        free = p.kind in ("rectangle", "box", "voxels") or (p.kind == "cells" and p.inside[0, 0])
        free &= p.cells[axis] >= _LEAST_PERIODIC[axes]
        if free and rng.random() < 0.5:
            p.sides |= {name: [Condition("periodic")] for name in pair}
            continue
        for name in pair if p.kind not in ("disk", "polygon", "blocks") else ():
            varied = p.kind in ("rectangle", "box")
            rest = _draw_condition(rng, varied=varied)
            p.sides[name] = [rest]
            p.data[name] = str(rng.choice(["expression", "function", "array", "torch"]))
            if axes == 2 and varied and rng.random() < 0.5:
                along, h = p.cells[1 - axis], p.steps[1 - axis]
                # Not at a node: of which of both it is, need not be said.
                first, last = sorted(rng.choice(along + 1, 2, replace=False).tolist())
                ends = first - 0.3 if first else 0.0, last + 0.4 if last < along else float(along)
                part = _draw_condition(rng, varied=True)
                part.ends = tuple(float(h * end) for end in ends)
                p.sides[name] = [part, rest]
    if outline:
        kinds = ("value",) if p.kind in ("disk", "polygon") else ("value", "flux", "exchange")
        condition = _draw_condition(rng, varied=p.kind in ("disk", "polygon"), kinds=kinds)
        if p.kind == "nodes" and condition.kind != "value":
            condition = Condition("flux")
        p.sides["outline"] = [condition]
        p.data["outline"] = str(rng.choice(["expression", "function"]))


def _draw_fields(rng, p):
    """Draw fields; where an outline runs through nodes of which nothing is known, they are per cell or numbers."""
    ways = ["array", "torch", "masked", "labelled"]
    contrast = 10.0 ** rng.integers(0, 4)

    def values(make, *kinds):
        kind = str(rng.choice(kinds))
        shape = {"number": (), "cell": p.cells, "node": p.nodes}[kind]
        result = make(shape)
        return float(result) if kind == "number" else result

    nodes = () if p.kind in ("cells", "blocks", "nodes", "disk", "polygon") else ("node",)
    cell = () if p.kind in ("nodes", "disk", "polygon") else ("cell",)
    p.fields["a"] = values(lambda s: contrast ** (rng.random(s) - 0.5), "number", *nodes, *cell)
    p.fields["f"] = values(lambda s: np.asarray(rng.standard_normal(s)), "number", *nodes, *cell)
    loose = not any(c.kind in ("value", "exchange") for each in p.sides.values() for c in each)
    scattered = p.kind in ("voxels", "cells", "nodes")
    if loose or scattered or rng.random() < 0.5:
        p.fields["c"] = values(lambda s: 0.1 + rng.random(s), "number", *nodes)
    for name, v in p.fields.items():
        if np.ndim(v):
            p.data[name] = str(rng.choice(ways))
    if p.kind in ("rectangle", "box") and rng.random() < 0.7:
        p.held = rng.random(p.nodes) < 0.06
        for axis, (name, _) in enumerate(SIDES[len(p.cells)]):
            if p.sides[name][0].kind == "periodic":
                ends = np.moveaxis(p.held, axis, 0)
                ends[-1] = ends[0]
        p.data["held"] = str(rng.choice([*ways, "numbers"]))
        p.held = p.held if p.held.any() else None
