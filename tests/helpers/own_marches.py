"""Fields of `drawn_marches`, by the matrices of `own_equations`."""

from dataclasses import replace

import numpy as np
import scipy.sparse
from drawn_marches import DT, STEPS
from drawn_problems import Condition, places_of
from own_equations import OwnEquations
from scipy.sparse.linalg import spsolve


class _Side(Condition):
    """A condition at a time."""

    def at(self, *places):
        return self.value(places[0], places[1])


def equations_at(march, t, side):
    """Return the equations of the problem at a time."""
    p = march.p
    y, x = places_of(p.nodes, p.steps)[-2:]
    fields = dict(p.fields) | {n: d.at(x, y, t, side) for n, d in march.moving.items() if isinstance(n, str)}  # fmt: skip
    if march.times is not None:
        n = min(int(t / DT + 1e-9), STEPS - 1)
        fields["f"] = march.times[n] + (t / DT - n) * (march.times[n + 1] - march.times[n])
    sides = {}
    for name, each in p.sides.items():
        sides[name] = []
        for number, c in enumerate(each):
            values, alpha = (march.moving.get(k) for k in ((name, number), (name, number, "alpha")))
            now = _Side(c.kind, c.g0, c.g1, c.alpha if alpha is None else alpha.at(0.0, 0.0, t, side), c.ends)  # fmt: skip
            now.value = c.at if values is None else lambda x, y, d=values: d.at(x, y, t, side)
            sides[name].append(now)
    return OwnEquations(replace(p, fields=fields, sides=sides))


def _inflow(e):
    """Return what sides and outlines add to the right-hand side, of the values on them."""
    b = np.zeros(e.number.size)
    for _, node, g, _ in e.natural:
        b[e.same[node]] += g
    for node, conductance, g in e.ties:
        b[node] += conductance * g
    return b


def own_march(march):
    """Return the fields at all times, ``(times, *nodes)``."""
    p, r = march.p, 0.5 if march.pde == "reaction-diffusion" else 0.0
    places = places_of(p.nodes, p.steps)
    u0 = 1 + places[-1] - 2 * places[-2] if isinstance(march.initial, str) else march.initial
    e = equations_at(march, 0.0, 0)
    u = np.zeros(e.number.size)
    u[:] = (u0 + np.zeros(p.nodes)).ravel()
    for unknown, value in e.given.items():
        u[unknown] = value
    fields, shown = [u], [e.shown(u)]
    for n in range(STEPS):
        several = march.method == "bdf2" and n > 0
        anew = several and any(d.now.switch == n for d in march.moving.values())
        share = {"euler": 1.0, "bdf2": 1.0 if n else 2 / 3, "crank-nicolson": 0.5}[march.method]
        weight = 1.5 if several and not anew else 1 / share
        old, t = fields[-1], (n + share) * DT
        first, last = equations_at(march, n * DT, 1), equations_at(march, (n + 1) * DT, -1)
        stage = last if share == 1.0 else equations_at(march, t, 0)
        begun = old.copy()
        if share != 1.0:
            begun[[*first.given]] = [*first.given.values()]
        past = 2 * old - 0.5 * fields[-2] if several and not anew else weight * old
        s = march.moving.get("s")
        y, x = places[-2:]
        side = -1 if share == 1.0 else 0
        stored = stage.per_unknown(stage.volumes * (1.0 if s is None else s.at(x, y, t, side)))
        b = stage.b - _inflow(stage) + (1 - share) * _inflow(first) + share * _inflow(last)
        b += stored * past / DT
        matrix = stage.matrix + scipy.sparse.diags_array(weight / DT * stored)
        u, free = np.zeros_like(old), last.free
        for unknown, value in last.given.items():
            u[unknown] = (1 - share) * first.given[unknown] + share * value
        volumes = stage.per_unknown(stage.volumes)
        for _ in range(30 if r else 1):
            left = (b - matrix @ u - volumes * r * u**3)[free]
            jacobian = matrix + scipy.sparse.diags_array(3 * volumes * r * u**2)
            if len(free):
                u[free] += spsolve(jacobian[free][:, free].tocsc(), left)
        fields.append((u - (1 - share) * begun) / share)
        shown.append(last.shown(fields[-1]))
    return np.stack(shown)
