"""Newton's method for the nonlinear equations, of numpy alone: residuals are added up cell by cell, derivatives are by complex steps."""

import itertools

import numpy as np

import mosaicdd as m

STEP = 1e-30
SIDES = {"left": (-1, 0), "right": (-1, -1), "bottom": (-2, 0), "top": (-2, -1), "back": (-3, 0), "front": (-3, -1)}  # fmt: skip


def _fitted(z):
    small = abs(z) < 1e-9
    z = np.where(small, 1.0, z)
    return np.where(small, 1.0, z / np.tanh(z))


def _series(a, b):
    return 2.0 / (1.0 / a + 1.0 / b)


def _burgers(u, v, h, fields):
    nu = _series(*fields["nu"])
    fastest = np.where(abs(u.real) > abs(v.real), u, v)
    return (u**2 + v**2) / 4 + nu * _fitted(fastest * h / (2 * nu)) * (u - v) / h


def _quasilinear(u, v, h, fields):
    k = (6.0 + u**2 + (u + v) ** 2 + v**2) / 6  # of 1 + u**2 by Simpson's rule
    return _series(*fields["a"]) * k * (u - v) / h


def _linear(u, v, h, fields):
    return _series(*fields["a"]) * (u - v) / h


def _squared_mean(u, v, h, fields):
    first, last = fields["eps"]
    return (first**2 + last**2) / 2 * (u - v) / h


FLUX = {"burgers": _burgers, "quasilinear-diffusion": _quasilinear, "allen-cahn": _squared_mean}
"""From a node with ``u`` to the next, with ``v``, ``h`` away; of the others that of diffusion."""

REACTION = {
    "allen-cahn": lambda u, fields: (fields["c"] - 1.0) * u + u**3,
    "poisson-boltzmann": lambda u, fields: fields["c"] * np.sinh(u),
    "reaction-diffusion": lambda u, fields: fields["c"] * u + u**3,
}
CONDUCTIVITY = {
    "minimal-surface": lambda squared, fields: (1.0 + squared) ** -0.5,
    "p-laplace": lambda squared, fields: (
        (fields["eps"] ** 2 + squared) ** ((fields["p"] - 2.0) / 2.0)
    ),
}
"""Of the equations in the gradient."""


class Assembled:
    """The equations of a problem on the cells of a grid, or those of a mask: sums over volumes, all at once."""

    def __init__(self, problem, mask=None):
        domain = problem.domain
        self.name, self.steps, self.cells = problem.equation.name, domain.grid().steps, domain.cells
        self.axes, self.nodes = len(self.cells), domain.grid().nodes
        self.mask = np.ones(self.cells) if mask is None else mask.astype(float)
        self.volume = np.prod(self.steps)
        known = {**problem.equation.parameters, **problem.fields}
        known = {key: value for key, value in known.items() if key not in ("k", "r")}
        letters = "xyz"[: self.axes]
        places = np.indices(self.nodes)[::-1]
        self.names = {key: places[i] * self.steps[::-1][i] for i, key in enumerate(letters)}
        self.fields = {key: np.broadcast_to(self.at(v), self.nodes) for key, v in known.items()}
        self.fields.setdefault("a", np.ones(self.nodes))
        self.fields.setdefault("f", np.zeros(self.nodes))
        self.given = np.full(self.nodes, np.nan)
        self.inflow, self.exchange = np.zeros(self.nodes), np.zeros(self.nodes)
        self.first = np.arange(np.prod(self.nodes)).reshape(self.nodes)  # of what is one node
        sides, names = problem.sides, list(SIDES)[: 2 * self.axes]
        if not isinstance(sides, dict):
            sides = dict.fromkeys(names, sides)
        for side in {**dict.fromkeys(names), **sides}:
            self.put(side, sides.get(side, m.Dirichlet()))
        there = np.zeros(self.nodes)
        for corner in self.corners:
            there[self.of(corner)] += self.mask
        self.given = np.where(there > 0, self.given, 0.0)
        self.outside = there == 0
        rest = np.flatnonzero(np.isnan(self.given))
        self.unknown, self.number = np.unique(self.first.ravel()[rest], return_inverse=True)
        self.rest = rest

    @property
    def corners(self):
        return itertools.product((0, 1), repeat=self.axes)

    def of(self, corner):
        """Return the nodes at a corner of all cells."""
        return (..., *(slice(1, None) if c else slice(None, -1) for c in corner))

    def at(self, values):
        """Return values at the nodes, of a number, an array or the text of an expression."""
        names = {"sin": np.sin, "cos": np.cos, "exp": np.exp, **self.names}
        return eval(values, {}, names) if isinstance(values, str) else values

    def put(self, side, condition):
        """Enter what holds on a side, or on the outline of a mask."""
        if isinstance(condition, m.Periodic):
            axis, end = SIDES[side]
            if end:
                self.first = self.first.swapaxes(0, axis)
                self.first[-1] = self.first[0]
                self.first = self.first.swapaxes(0, axis)
            return
        lengths = np.zeros(self.nodes)
        for axis, end, faces in self.faces(side):
            area = self.volume / self.steps[axis] / 2 ** (self.axes - 1)
            for corner in self.corners:
                if corner[axis] == end:
                    lengths[self.of(corner)] += area * faces
        values = np.broadcast_to(self.at(condition.values), self.nodes)
        if isinstance(condition, m.Dirichlet):
            self.given = np.where(lengths > 0, values, self.given)
            return
        self.inflow += lengths * values
        self.exchange += lengths * getattr(condition, "alpha", 0.0)

    def faces(self, side):
        """Return along which axis, at which end of cells, and of which cells a side has faces."""
        every = [SIDES[side]] if side in SIDES else []
        for axis, end in every:
            faces = np.zeros(self.cells)
            place = [slice(None)] * self.axes
            place[axis] = end
            faces[tuple(place)] = self.mask[tuple(place)]
            yield axis, -end, faces
        for axis, end in itertools.product(range(self.axes), (0, 1)) if side == "outline" else ():
            beyond = np.roll(self.mask, 1 - 2 * end, axis)
            place = [slice(None)] * self.axes
            place[axis] = -end
            beyond[tuple(place)] = 1.0  # which is a side
            yield axis, end, self.mask * (1.0 - beyond)

    def volumes(self, u):
        """Return the residual times the volumes, at all nodes of values ``(.., nodes)``, before anything is given."""
        total = np.zeros_like(u)
        share = self.mask * self.volume / 2**self.axes
        for corner in self.corners:
            here = self.of(corner)
            fields = {key: values[here] for key, values in self.fields.items()}
            react = REACTION.get(self.name, lambda u, fields: fields.get("c", 0.0) * u)
            total[here] += share * (react(u[here], fields) - fields["f"])
            beside = [
                self.of((*corner[:k], 1 - corner[k], *corner[k + 1 :])) for k in range(self.axes)
            ]
            if self.name in CONDUCTIVITY:
                slopes = [(u[here] - u[n]) / h for n, h in zip(beside, self.steps, strict=True)]
                squared = sum(slope**2 for slope in slopes)
                k = share * fields["a"] * CONDUCTIVITY[self.name](squared, fields)
                for n, slope, h in zip(beside, slopes, self.steps, strict=True):
                    total[here] += k * slope / h
                    total[n] -= k * slope / h
                continue
            for n, h, c in zip(beside, self.steps, corner, strict=True):
                if c == 0:
                    ends = {key: (v[here], v[n]) for key, v in self.fields.items()}
                    flow = FLUX.get(self.name, _linear)(u[here], u[n], h, ends)
                    for at, sign in ((here, 1), (n, -1)):
                        # What is carried through a side is what flows along on its own.
                        carried = u[at] ** 2 / 2 if self.name == "burgers" else 0.0
                        total[at] += sign * 2 * share / h * (flow - carried)
        return total + self.exchange * u - self.inflow

    def residual(self, x):
        """Return that of unknowns ``(.., n)``, and the field."""
        flat = np.broadcast_to(self.given.ravel(), (*x.shape[:-1], self.given.size)).astype(x.dtype)
        flat[..., self.rest] = x[..., self.number]
        every = self.volumes(flat.reshape(*x.shape[:-1], *self.nodes)).reshape(flat.shape)
        total = np.zeros_like(x)
        np.add.at(total.T, self.number, every[..., self.rest].T)
        return total, flat

    def solve(self, steps=60):
        """Return the field, NaN outside of a mask, and what is left of its residual relative to the first."""
        n = len(self.unknown)
        x = np.full(n, np.nanmean(np.where(self.outside, np.nan, self.given)))
        first, last = 0.0, np.inf
        for _ in range(steps):
            r = self.residual(x)[0]
            norm = np.linalg.norm(r)
            first = first or norm
            if norm >= last and norm < 1e-10 * first:
                break
            last = norm
            derivative = self.residual(x + 1j * STEP * np.eye(n))[0].imag.T / STEP
            change, length = np.linalg.solve(derivative, -r), 1.0
            while (
                np.linalg.norm(self.residual(x + length * change)[0]) > norm > 1e-10 * first
                and length > 1e-6
            ):
                length /= 2
            x = x + length * change
        field = self.residual(x)[1].reshape(self.nodes)
        return np.where(self.outside, np.nan, field), norm / first
