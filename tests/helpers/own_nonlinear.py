"""Random equations that are not linear, on the domains of `drawn_problems`, and Newton's method for them, edge by edge or cell by cell.

Nothing of the package is used: edges, volumes and conditions are those of `own_equations`; torch has the derivatives.
"""

import itertools
from dataclasses import replace

import numpy as np
import torch
from drawn_problems import KINDS, WHOLE_CELLS, Drawn, drawn
from own_equations import OwnEquations
from scipy.sparse import coo_array
from scipy.sparse.linalg import spsolve

P, EPS = 3.0, 0.3
ENERGIES = {
    "minimal-surface": lambda a, squared: (1 + squared) ** 0.5,
    "p-laplace": lambda a, squared: a * (EPS**2 + squared) ** (P / 2) / P,
}
"""Per volume, by the squared slope at a corner of a cell."""


def _quasilinear(k, u, v, area):
    through = k * (1 + (u**2 + (u + v) ** 2 + v**2) / 6) * (u - v)  # 1 + u^2 by Simpson's rule
    return through, through


def _burgers(k, u, v, area):
    z = torch.maximum(abs(u), abs(v)) * area / (2 * k)
    fitted = torch.where(z < 1e-3, 1 + z**2 / 3, z / torch.tanh(z.clamp(min=1e-3)))
    through = area * (u**2 + v**2) / 4 + k * fitted * (u - v)
    return through - area * u**2 / 2, through - area * v**2 / 2


FLOWS = {"quasilinear-diffusion": _quasilinear, "burgers": _burgers}
"""What leaves one end of an edge of conductance ``k``, and what arrives at the other; of others that of diffusion."""
REACTIONS = {
    "poisson-boltzmann": lambda c, volumes, u: c * torch.sinh(u),
    "reaction-diffusion": lambda c, volumes, u: c * u + volumes * u**3,
    "allen-cahn": lambda c, volumes, u: (c - volumes) * u + volumes * u**3,
}
"""By the sums of the coefficient over volumes; of others ``c u``."""
EQUATIONS = ("poisson-boltzmann", "quasilinear-diffusion", "reaction-diffusion", "allen-cahn", "burgers", *ENERGIES)  # fmt: skip
_PLACES = {
    "burgers": ("rectangle", "cells", "blocks"),
    **dict.fromkeys(ENERGIES, ("rectangle", "box", "voxels")),
}


def drawn_nonlinear(seed, *, large=False, name=None, kind=None):
    """Draw an equation and a problem of it: a `Drawn` whose fields have the names of the package."""
    rng = np.random.default_rng([seed, 3])
    name = name or EQUATIONS[seed % len(EQUATIONS)]
    places = _PLACES.get(name, KINDS)
    kind = kind or str(rng.choice(places))
    tries = (drawn(seed + k, large=large, kind=kind) for k in itertools.count(0, 10**6))
    p = next(p for p in tries if name not in ENERGIES or not any(_odd_periods(p)))
    fields, cells = dict(p.fields), p.kind in WHOLE_CELLS
    fields.setdefault("c", 0.5)
    if cells and rng.random() < 0.5:
        fields["c"] = 0.1 + rng.random(p.cells)
    # Both ends of a period have the values of the first.
    for key, values in fields.items():
        values = np.array(values)
        for axis in np.flatnonzero(OwnEquations(p).wraps):
            if values.shape == p.nodes:
                ends = np.moveaxis(values, axis, 0)
                ends[-1] = ends[0]
        fields[key] = values if values.ndim else float(values)
    if name == "minimal-surface":  # which takes no larger fluxes
        sides = {n: [replace(c, g0=0.1 * c.g0, g1=0.05 * c.g1) for c in each] for n, each in p.sides.items()}  # fmt: skip
        p, fields = replace(p, sides=sides), {"f": 0.05 * fields["f"]}
    elif name == "p-laplace":
        fields = {"a": fields["a"], "f": fields["f"], "p": P, "eps": EPS}
    elif name == "allen-cahn":
        a = fields.pop("a")
        fields |= {"eps": np.sqrt(a), "c": 2.0 + fields["c"]}
    elif name == "burgers":
        fields["nu"] = 0.5 + fields.pop("a")  # else the grid is too coarse for it
    return replace(p, pde=name, fields=fields)


def _odd_periods(p):
    """Say for each axis whether it comes round after an odd number of cells."""
    return np.array(OwnEquations(p).wraps) & (np.array(p.cells) % 2 == 1)


class OwnNonlinear(OwnEquations):
    """The discrete equations of a nonlinear problem, and their solution by factorisations."""

    def __init__(self, p: Drawn):
        self.name, fields = p.pde, dict(p.fields)
        if "eps" in fields and self.name == "allen-cahn":
            fields["a"] = np.square(fields.pop("eps"))
        if "nu" in fields:
            fields["a"] = fields.pop("nu")
        super().__init__(replace(p, fields={"a": 1.0} | fields))

    def _between(self, low, high):
        """Return that of an edge: of squares of widths the mean, else of conductors in series."""
        return (low + high) / 2 if self.name == "allen-cahn" else super()._between(low, high)

    def _equations(self, u):
        """Return the residual of all unknowns, and its matrix."""
        size, every = u.size, np.arange(u.size)
        rows, columns, values = [], [], []
        left = -self.b.astype(float)

        def enter(row, column, value):
            rows.append(np.asarray(row))
            columns.append(np.asarray(column))
            values.append(np.asarray(value))

        x = torch.from_numpy(u).requires_grad_()
        consumed, volumes = (torch.from_numpy(self.per_unknown(v)) for v in (self.consumed, self.volumes))  # fmt: skip
        linear = lambda c, volumes, u: c * u
        reaction = REACTIONS.get(self.name, linear)(consumed, volumes, x)
        left += reaction.detach().numpy()
        enter(every, every, torch.autograd.grad(reaction.sum(), x)[0])
        for _, node, _, alpha in self.natural:
            left[self.same[node]] += alpha * u[self.same[node]]
            enter([self.same[node]], [self.same[node]], [alpha])
        for i, k, g in self.ties:
            at = torch.tensor(u[i]).requires_grad_()
            beyond = torch.tensor(float(g))
            through = self._flow(torch.tensor(k), at, beyond)[0]
            left[i] += through.item() + k * g  # which `b` has
            enter([i], [i], [torch.autograd.grad(through, at)[0]])
        (self._by_energy if self.name in ENERGIES else self._by_edges)(u, left, enter)
        entries = (np.concatenate(part) for part in (values, rows, columns))
        values, rows, columns = entries
        return left, coo_array((values, (rows, columns)), shape=(size, size)).tocsr()

    def _flow(self, k, u, v, area=0.0):
        plain = lambda k, u, v, area: (k * (u - v),) * 2
        return FLOWS.get(self.name, plain)(k, u, v, area)

    def _by_edges(self, u, left, enter):
        for i, j, k, area in self.edges:
            ends = [torch.from_numpy(u[n]).requires_grad_() for n in (i, j)]
            parts = self._flow(torch.from_numpy(k), *ends, area)
            for number, sign, out in zip((i, j), (1, -1), parts, strict=True):
                np.add.at(left, number, sign * out.detach().numpy())
                for column, slope in zip((i, j), torch.autograd.grad(out.sum(), ends, retain_graph=True), strict=True):  # fmt: skip
                    enter(number, column, sign * slope)

    def _by_energy(self, u, left, enter):
        p, axes, volume = self.p, len(self.p.cells), float(np.prod(self.p.steps))
        corners = list(itertools.product((0, 1), repeat=axes))

        def at(values):
            """Return values at the corners of cells, ``(cells, corners)``."""
            shown = [values[tuple(slice(c, n + c) for c, n in zip(k, p.cells, strict=True))] for k in corners]  # fmt: skip
            return np.stack([one[p.inside] for one in shown], axis=-1)

        a = self._field("a")
        a = np.stack([a[p.inside]] * len(corners), -1) if a.shape == p.cells else at(np.broadcast_to(a, p.nodes))  # fmt: skip
        numbers = at(self.same)

        def energy(u, a):
            total = 0.0
            for number, corner in enumerate(corners):
                squared = 0.0
                for axis, step in enumerate(p.steps):
                    other = (*corner[:axis], 1 - corner[axis], *corner[axis + 1 :])
                    squared = squared + ((u[number] - u[corners.index(other)]) / step) ** 2
                total = total + ENERGIES[self.name](a[number], squared)
            return volume / 2**axes * total

        of_cells = torch.from_numpy(u[numbers]), torch.from_numpy(a.copy())
        slopes = torch.func.vmap(torch.func.grad(energy))(*of_cells)
        np.add.at(left, numbers, slopes.numpy())
        curved = torch.func.vmap(torch.func.hessian(energy))(*of_cells)
        enter(np.repeat(numbers, len(corners), axis=1).ravel(), np.tile(numbers, len(corners)).ravel(), curved.ravel())  # fmt: skip

    def solve(self, begin):
        """Return the values at nodes, NaN where there are none, of the solution that is nearest to other values."""
        u, free = np.nan_to_num(begin).ravel(), self.free
        u[self.fixed_unknowns] = [self.given[n] for n in self.fixed_unknowns]
        left, matrix = self._equations(u)
        for _ in range(50):
            change, length = np.zeros(u.size), 1.0
            change[free] = spsolve(matrix[free][:, free].tocsc(), -left[free])
            size = np.linalg.norm(left[free])
            while True:
                tried, matrix = self._equations(u + length * change)
                if np.linalg.norm(tried[free]) < size or length < 1e-9:
                    break
                length /= 2
            u, left = u + length * change, tried
            if np.abs(length * change).max() <= 1e-13 * max(np.abs(u).max(), 1e-3):
                break
        terms = abs(matrix) @ abs(u) + abs(self.b)
        # At a kink, where flows turn, Newton's method may stand still a little above rounding.
        assert np.linalg.norm(left[free]) <= 1e-8 * np.linalg.norm(terms)
        return self.shown(u)
