"""The equations of `drawn_problems`, put together without the package.

A domain is a set of cells, whose corners have a part of the volumes, and of the faces of edges; or the nodes inside of a
distance, whose edges end where it is zero. ``u`` are values at nodes, ``n`` of them, row by row.
"""

import functools
import itertools

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from drawn_problems import SIDES, WHOLE_CELLS, Condition, places_of


class OwnEquations:
    """The discrete equations ``matrix @ u = b`` of a drawn problem, with values of some unknowns.

    Attributes
    ----------
    volumes
        Of the nodes, ``(rows, columns)``.
    given
        Values by unknown: of sides, outlines and what is held.
    matrix, b
        Of all numbers of nodes; those of nodes without an unknown have empty rows.
    edges
        Both unknowns, conductance and area of each edge's part in a cell, or of all of it between nodes.
    there, fixed_unknowns, free
        Unknowns of the domain, those with values, and the rest.
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
        self.entries, self.edges = [], []
        self.volumes, self.loads, self.consumed = np.zeros((3, *p.nodes))
        self.natural = []  # (side, node, length times g, length times alpha)
        self.known = [], []  # nodes and values of sides and what is held
        self.fixed = {}  # by unknown, of outlines: they come first
        self.ties = []  # (unknown, conductance, value)
        (self._by_cells if p.kind in WHOLE_CELLS else self._by_nodes)()
        self._assemble()

    def _field(self, name, default=0.0):
        return np.asarray(self.p.fields.get(name, default), float)

    def _by_cells(self):
        p, axes, volume = self.p, len(self.p.cells), float(np.prod(self.p.steps))
        f, c, letters = self._field("f"), self._field("c"), "zyx"[-axes:]
        for corner in itertools.product((0, 1), repeat=axes):
            at = tuple(slice(k, k + n) for k, n in zip(corner, p.cells, strict=True))
            share = p.inside * volume / 2**axes
            self.volumes[at] += share
            f_here = f if f.shape in ((), p.cells) else f[at]
            self.loads[at] += share * f_here
            self.consumed[at] += share * (c if c.shape in ((), p.cells) else c[at])
        for axis, x in enumerate(letters):
            a = self._field(f"a{x}{x}", self.p.fields.get("a", 1.0))
            edges = tuple(n + (i != axis) for i, n in enumerate(p.cells))
            k, faces = np.zeros((2, *edges))
            for corner in itertools.product((0, 1), repeat=axes - 1):
                area = volume / p.steps[axis] / 2 ** (axes - 1)
                ends = [(*corner[:axis], end, *corner[axis:]) for end in (0, 1)]
                low, high = (tuple(slice(k, k + n) for k, n in zip(e, p.cells, strict=True)) for e in ends)  # fmt: skip
                within = a if a.shape in ((), p.cells) else self._between(a[low], a[high])
                here = np.broadcast_to(within * area / p.steps[axis], p.cells)
                k[low] += p.inside * here
                ends_here = (self.same[at][p.inside] for at in (low, high))
                self.edges.append((*ends_here, here[p.inside], area))
                faces[low] += p.inside * area
                self._faces(axis, ends, area)
            low = (slice(None),) * axis + (slice(None, -1),)
            high = (slice(None),) * axis + (slice(1, None),)
            b = np.broadcast_to(self._field(f"b{x}"), p.nodes)
            v, there = faces * (b[low] + b[high]) / 2, k > 0
            self._enter(self.same[low][there], self.same[high][there], k[there], v[there])

    def _between(self, low, high):
        """Return the coefficient of an edge by those at its ends: of conductors in series."""
        return 2 / (1 / low + 1 / high)

    def _enter(self, i, j, k, v=0.0):
        """Enter edges of conductances ``k`` and velocities ``v`` times faces, fitted exponentially."""
        peclet = np.where(abs(v) > 1e-6 * k, v / (2 * k), 1e-9)
        k = k * peclet / np.tanh(peclet)
        self.entries.append((i, j, k - v / 2, k + v / 2))

    def _faces(self, axis, ends, area):
        p = self.p
        for end, corner in enumerate(ends):
            beside = np.roll(p.inside, 1 - 2 * end, axis)
            last = (p.cells[axis] - 1) * end
            if not self.wraps[axis]:
                np.moveaxis(beside, axis, 0)[last] = False
            for at in np.argwhere(p.inside & ~beside):
                within = self.wraps[axis] or at[axis] != last
                name = "outline" if within else SIDES[len(p.cells)][axis][end]
                self._face(name, tuple(at + corner), at, axis, area)

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
            self._enter(self.number[low][both], self.number[high][both], k[both])
            self.edges.append((self.number[low][both], self.number[high][both], k[both], 0.0))
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
        g = c.at(*[float(along[node]) for along in self.places][::-1])
        if c.kind == "value":
            self.known[0].append((name, node))
            self.known[1].append(g)
        else:
            alpha = c.alpha * (c.kind == "exchange")
            self.natural.append((name, node, length * g, length * alpha))

    def per_unknown(self, values):
        """Return sums over the nodes of each unknown."""
        return np.bincount(self.same.ravel(), np.ravel(values), self.number.size)

    def _assemble(self):
        p, size = self.p, self.number.size
        known = {}
        for (_, node), value in dict(zip(self.known[0], self.known[1], strict=True)).items():
            known.setdefault(self.same[node], []).append(value)
        if p.held is not None:
            for node in np.argwhere(p.held):
                known.setdefault(self.same[tuple(node)], []).append(0.5)
        self.given = {i: float(np.mean(values)) for i, values in known.items()} | self.fixed
        i, j, p_ij, p_ji = (np.concatenate([np.atleast_1d(e[n]) for e in self.entries]) for n in range(4))  # fmt: skip
        diagonal, self.b = self.per_unknown(self.consumed), self.per_unknown(self.loads)
        for _, node, g, alpha in self.natural:
            self.b[self.same[node]] += g
            diagonal[self.same[node]] += alpha
        for node, conductance, g in self.ties:
            self.b[node] += conductance * g
            diagonal[node] += conductance
        rows, columns = np.concatenate([i, j, i, j]), np.concatenate([i, j, j, i])
        matrix = scipy.sparse.coo_array((np.concatenate([p_ij, p_ji, -p_ij, -p_ji]), (rows, columns)), shape=(size, size))  # fmt: skip
        self.matrix = (matrix.tocsr() + scipy.sparse.diags_array(diagonal)).tocsr()
        self.fixed_unknowns = np.array(sorted(self.given), int)
        self.there = np.unique(np.concatenate([self.same[self.volumes > 0], self.fixed_unknowns]))
        self.free = np.setdiff1d(self.there, self.fixed_unknowns)

    def shown(self, u):
        """Return values of unknowns at nodes, ``(rows, columns)``, NaN where there are none."""
        p, u = self.p, u.copy()
        shown = np.isin(self.same, self.there)
        if p.level is not None:  # nodes on the outline beside active ones, too
            beside = np.pad(self.level < 0, 1)
            n = p.nodes
            near = np.any([beside[a : a + n[0], b_ : b_ + n[1]] for a in range(3) for b_ in range(3)], axis=0)  # fmt: skip
            on = (self.level == 0) & near
            y, x = self.places
            u[on.ravel()] = p.sides["outline"][0].at(x[on], y[on])
            shown |= on
        return np.where(shown, u[self.same], np.nan)


class OwnSolution(OwnEquations):
    """The values of a drawn problem, with sources of nodes besides, and what flows.

    Attributes
    ----------
    u
        ``(rows, columns)``, NaN where there are none.
    flows
        What flows out, by the names of natural sides, and ``held`` of all that values are given on.
    """

    def __init__(self, p, at_nodes=0.0):
        super().__init__(p)
        self.b += self.per_unknown(np.broadcast_to(at_nodes, p.nodes))
        u, free = np.zeros(self.number.size), self.free
        u[self.fixed_unknowns] = [self.given[n] for n in self.fixed_unknowns]
        if len(free):
            left = self.b - self.matrix @ u
            u[free] = scipy.sparse.linalg.spsolve(self.matrix[free][:, free].tocsc(), left[free])
        self.u = self.shown(u)
        self._sum_up(u)

    def _sum_up(self, u):
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
        inner = np.setdiff1d(self.fixed_unknowns, outline)
        self.held = float((self.b - self.matrix @ u)[inner].sum())
        self.through_outline = 0.0
        for i, j, *ways in self.entries:  # to nodes that an outline holds, from all others
            for here, there, k in ((i, j, ways[0]), (j, i, ways[1])):
                out = np.isin(there, outline) & ~np.isin(here, outline)
                self.through_outline += float((k * (u[here] - u[there]))[out].sum())

    @functools.cached_property
    def mean(self):
        """Of whole cells."""
        known = self.volumes > 0
        return float((self.u[known] * self.volumes[known]).sum() / self.volumes[known].sum())
