"""Random problems of domains, equations, sides and kinds of data that go together, each with a matrix put together here.

A domain is a set of cells, whose corners have a part of the volumes, and of the faces of edges; or the nodes inside of a
distance, whose edges end where it is zero. Nothing of the package is used for that. ``u`` are values at nodes, ``n`` of them,
row by row.
"""

import functools
import itertools
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
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

    @property
    def nodes(self):
        return tuple(n + 1 for n in self.cells)

    @property
    def problem(self):
        """The package's."""
        fields = {name: _given(v, self.data.get(name), self) for name, v in self.fields.items()}
        conditions = {}
        for name, each in self.sides.items():
            for c in each:
                part = name if c.ends is None else f"{name}[{c.ends[0]!r}:{c.ends[1]!r}]"
                conditions[part] = self._condition(name, c)
        if self.held is not None:
            conditions["pole"] = m.Held(_mask_given(self.held, self.data.get("held"), self), 0.5)
        return m.Problem(self.domain, "diffusion", fields, conditions)

    def _condition(self, name, c):
        if c.kind == "periodic":
            return m.Periodic()
        values = c.g0
        if c.g1:
            ways = {
                "expression": f"{c.g0!r} + {c.g1!r}*x*y",
                "function": lambda x, y, *z: c.g0 + c.g1 * x * y,
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


# An assembly of its own


class OwnSolution:
    """The values of a drawn problem, and what flows.

    Attributes
    ----------
    u
        ``(rows, columns)``, NaN where there are none.
    volumes
        Of the nodes, of whole cells.
    flows
        What flows out, by the names of natural sides, and ``held`` of all that values are given on.
    """

    def __init__(self, p):
        self.p, self.number = p, np.arange(np.prod(p.nodes)).reshape(p.nodes)
        self.same = self.number.copy()
        for axis, (low, _) in enumerate(SIDES[len(p.cells)]):
            if p.sides.get(low, [Condition("")])[0].kind == "periodic":
                ends = np.moveaxis(self.same, axis, 0)
                ends[-1] = ends[0]
        self.wraps = tuple(p.sides.get(low, [Condition("")])[0].kind == "periodic" for low, _ in SIDES[len(p.cells)])  # fmt: skip
        self.places = places_of(p.nodes, p.steps)
        self.entries = []
        self.volumes, self.loads, self.consumed = np.zeros((3, *p.nodes))
        self.natural = []  # (side, node, length times g, length times alpha)
        self.known = [], []  # nodes and values of sides and what is held
        self.fixed = {}  # by unknown, of outlines: they come first
        self.ties = []  # (unknown, conductance, value)
        (self._by_cells if p.kind in WHOLE_CELLS else self._by_nodes)()
        self._solve()

    def _field(self, name, default=0.0):
        return np.asarray(self.p.fields.get(name, default), float)

    def _by_cells(self):
        p, axes, volume = self.p, len(self.p.cells), float(np.prod(self.p.steps))
        a, f, c = self._field("a"), self._field("f"), self._field("c")
        for corner in itertools.product((0, 1), repeat=axes):
            at = tuple(slice(k, k + n) for k, n in zip(corner, p.cells, strict=True))
            share = p.inside * volume / 2**axes
            self.volumes[at] += share
            f_here = f if f.shape in ((), p.cells) else f[at]
            self.loads[at] += share * f_here
            self.consumed[at] += share * (c if c.shape == () else c[at])
        for axis, corner in itertools.product(
            range(axes), itertools.product((0, 1), repeat=axes - 1)
        ):
            area = volume / p.steps[axis] / 2 ** (axes - 1)
            ends = [(*corner[:axis], end, *corner[axis:]) for end in (0, 1)]
            low, high = (tuple(slice(k, k + n) for k, n in zip(e, p.cells, strict=True)) for e in ends)  # fmt: skip
            k = a if a.shape in ((), p.cells) else 2 / (1 / a[low] + 1 / a[high])
            k = np.broadcast_to(k, p.cells)[p.inside] * area / p.steps[axis]
            self.entries.append((self.same[low][p.inside], self.same[high][p.inside], k))
            self._faces(axis, ends, area)

    def _faces(self, axis, ends, area):
        p = self.p
        for end, corner in enumerate(ends):
            for at in np.argwhere(p.inside):
                beside = at.copy()
                beside[axis] += 2 * end - 1
                if self.wraps[axis]:
                    beside[axis] %= p.cells[axis]
                within = 0 <= beside[axis] < p.cells[axis]
                if within and p.inside[tuple(beside)]:
                    continue
                node = tuple(at + corner)
                name = "outline" if within else SIDES[len(p.cells)][axis][end]
                self._face(name, node, at, axis, area)

    def _face(self, name, node, cell, axis, area):
        """Enter what holds on the part of a face that belongs to a node."""
        p, each = self.p, self.p.sides[name]
        place = [float(along[node]) for along in self.places][::-1]
        shares = [1.0] * len(each)
        if len(each) > 1:  # the first is on a part
            along = 1 - axis
            x, h, (low, high) = node[along] * p.steps[along], p.steps[along], each[0].ends
            other = x + h / 2 if cell[along] == node[along] else x - h / 2
            first, last = sorted((x, other))
            part = max(min(last, high) - max(first, low), 0.0) / (h / 2)
            shares = [part, 1.0 - part]
            inside = low <= x <= high
        for number, (c, share) in enumerate(zip(each, shares, strict=True)):
            if c.kind == "value" and name == "outline":
                self.fixed[self.same[node]] = c.at(*place)
            elif c.kind == "value":
                if len(each) == 1 or inside == (number == 0):
                    self.known[0].append((name, node))
                    self.known[1].append(c.at(*place))
            elif share > 0:
                g = area * share * c.at(*place)
                alpha = area * share * c.alpha * (c.kind == "exchange")
                self.natural.append((name, node, g, alpha))

    def _by_nodes(self):
        """Assemble a domain of nodes, with values beyond or nothing: no square is cut but by the rectangle."""
        p, axes, volume = self.p, 2, float(np.prod(self.p.steps))
        inside, (outline,) = p.inside, p.sides["outline"]
        level = np.where(inside, -1.0, 0.0) if p.level is None else p.level.copy()
        level[abs(level) < 1e-6 * min(*p.steps, 1.0)] = 0.0
        inside = level < 0
        half = np.ones(p.nodes)
        for axis in range(axes):
            np.moveaxis(half, axis, 0)[[0, -1]] /= 2
        self.volumes = half * volume * inside
        self.loads = self.volumes * self._field("f")
        self.consumed = self.volumes * self._field("c")
        for axis in range(axes):
            low = tuple(slice(None, -1) if a == axis else slice(None) for a in range(axes))
            high = tuple(slice(1, None) if a == axis else slice(None) for a in range(axes))
            width = np.ones(p.nodes[1 - axis])
            width[[0, -1]] = 0.5
            face = volume / p.steps[axis] * width
            k = self._field("a") * np.broadcast_to(np.expand_dims(face, axis), level[low].shape)
            k = k / p.steps[axis]
            both = inside[low] & inside[high]
            self.entries.append((self.number[low][both], self.number[high][both], k[both]))
            for here, there in ((low, high), (high, low)):
                for i, j, q in zip(*(v[inside[here] & ~inside[there]] for v in (self.number[here], self.number[there], k)), strict=True):  # fmt: skip
                    if outline.kind != "value":
                        continue
                    theta = level.flat[i] / (level.flat[i] - level.flat[j])
                    theta = max(theta, 1e-4)
                    ends = [np.array([along.flat[n] for along in self.places]) for n in (i, j)]
                    y, x = ends[0] + (1.0 if p.level is None else theta) * (ends[1] - ends[0])
                    theta = 1.0 if p.level is None else theta
                    self.ties.append((int(i), q / theta, outline.at(x, y)))
        for axis, pair in enumerate(SIDES[axes] if p.kind == "nodes" else ()):
            for end, name in enumerate(pair):
                width = half.take(0, axis) * 2 * volume / p.steps[axis]
                for along in range(p.nodes[1 - axis]):
                    node = (end * p.cells[0], along) if axis == 0 else (along, end * p.cells[1])
                    if inside[node]:
                        self._on_side(name, node, width[along])
        self.level = level

    def _on_side(self, name, node, length):
        (c,) = self.p.sides[name]
        if c.kind == "value":
            self.known[0].append((name, node))
            self.known[1].append(c.g0)
        else:
            alpha = c.alpha * (c.kind == "exchange")
            self.natural.append((name, node, length * c.g0, length * alpha))

    def _solve(self):
        p, size = self.p, self.number.size
        known = {}
        for (_, node), value in dict(zip(self.known[0], self.known[1], strict=True)).items():
            known.setdefault(self.same[node], []).append(value)
        if p.held is not None:
            for node in np.argwhere(p.held):
                known.setdefault(self.same[tuple(node)], []).append(0.5)
        known = {i: float(np.mean(values)) for i, values in known.items()}
        known |= self.fixed
        every = [(i, j, k) for i, j, k in self.entries]
        i, j, k = (np.concatenate([np.atleast_1d(e[n]) for e in every]) for n in range(3))
        diagonal = np.bincount(self.same.ravel(), self.consumed.ravel(), size)
        b = np.bincount(self.same.ravel(), self.loads.ravel(), size)
        for _, node, g, alpha in self.natural:
            b[self.same[node]] += g
            diagonal[self.same[node]] += alpha
        for node, conductance, g in self.ties:
            b[node] += conductance * g
            diagonal[node] += conductance
        rows, columns = np.concatenate([i, j, i, j]), np.concatenate([i, j, j, i])
        matrix = scipy.sparse.coo_array((np.concatenate([k, k, -k, -k]), (rows, columns)), shape=(size, size)).tocsr()  # fmt: skip
        matrix = (matrix + scipy.sparse.diags_array(diagonal)).tocsr()
        u = np.zeros(size)
        fixed = np.array(sorted(known), int)
        u[fixed] = [known[n] for n in fixed]
        there = np.unique(np.concatenate([self.same[self.volumes > 0], fixed]))
        free = np.setdiff1d(there, fixed)
        if len(free):
            left = b - matrix @ u
            u[free] = scipy.sparse.linalg.spsolve(matrix[free][:, free].tocsc(), left[free])
        shown = np.isin(self.same, there)
        if p.level is not None:  # nodes on the outline beside active ones, too
            beside = np.pad(self.level < 0, 1)
            n = p.nodes
            near = np.any([beside[a : a + n[0], b_ : b_ + n[1]] for a in range(3) for b_ in range(3)], axis=0)  # fmt: skip
            on = (self.level == 0) & near
            y, x = self.places
            u[on.ravel()] = p.sides["outline"][0].at(x[on], y[on])
            shown |= on
        self.u = np.where(shown, u[self.same], np.nan)
        self._sum_up(u, b, matrix, fixed)

    def _sum_up(self, u, b, matrix, fixed):
        outline = np.array(sorted(self.fixed), int)
        counts = ~np.isin(
            self.same, outline
        )  # what lies beside a node that an outline holds has no effect
        self.sources = float((self.loads * counts).sum())
        self.reaction = float((self.consumed * counts * u[self.same]).sum())
        self.flows = dict.fromkeys(self.p.sides, 0.0)
        for name, node, g, alpha in self.natural:
            if counts[node]:
                self.flows[name] += alpha * u[self.same[node]] - g
        if self.ties:
            i, k, g = (np.array(part) for part in zip(*self.ties, strict=True))
            self.flows["outline"] += float((k * (u[i] - g)).sum())
        inner = np.setdiff1d(fixed, outline)
        self.held = float((b - matrix @ u)[inner].sum())
        self.through_outline = 0.0
        for i, j, k in self.entries:  # to nodes that an outline holds, from all others
            for here, there in ((i, j), (j, i)):
                out = np.isin(there, outline) & ~np.isin(here, outline)
                self.through_outline += float((k * (u[here] - u[there]))[out].sum())

    @functools.cached_property
    def mean(self):
        """Of whole cells."""
        known = self.volumes > 0
        return float((self.u[known] * self.volumes[known]).sum() / self.volumes[known].sum())
