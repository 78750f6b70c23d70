"""Random marches over the domains of `drawn_problems`; `own_marches` has their fields.

Data are smooth in time, or switched where a step ends, as texts, functions, arrays or numbers.
"""

from dataclasses import dataclass

import drawn_problems
import numpy as np
from drawn_problems import WHOLE_CELLS

import mosaicdd as m

DT, STEPS = 0.03, 5
METHODS = "euler", "bdf2", "crank-nicolson"
EQUATIONS = "heat", "advection-diffusion", "reaction-diffusion"


@dataclass
class InTime:
    """What data do in time: nothing, a sine, or a switch from 1 to ``after`` at the end of a step."""

    switch: int = 0
    waves: bool = False
    after: float = 0.4
    until: bool = False  # whether the time of the switch belongs to what is before it

    @classmethod
    def draw(cls, rng):
        how = rng.integers(4)
        return cls(int(rng.integers(1, STEPS) * (how > 1)), bool(how == 1), float(rng.uniform(0.2, 3.0)), bool(how == 3))  # fmt: skip

    def at(self, t, side=0):
        """Return the limit from the left (``side=-1``), from the right (1), or what holds at a time (0)."""
        steps = t / DT - self.switch
        if not self.switch:
            return 1 + 0.5 * np.sin(30 * t) if self.waves else 1.0
        near = abs(steps) < 1e-6
        before = (side < 0 or (side == 0 and self.until)) if near else steps < 0
        return 1.0 if before else self.after

    @property
    def text(self):
        if not self.switch:
            return "(1 + 0.5*sin(30*t))" if self.waves else "1"
        return (
            f"where(t {'<=' if self.until else '<'} {float(self.switch * DT)!r}, 1, {self.after!r})"
        )

    def function(self, t):
        end = self.switch * DT
        if not self.switch:
            return self.at(t)
        return 1.0 if (t <= end if self.until else t < end) else self.after


@dataclass
class Datum:
    """``(v0 + v1 x + v2 y) now(t)``."""

    v: tuple[float, float, float]
    now: InTime
    way: str  # text, function, default

    def at(self, x, y, t, side=0):
        return (self.v[0] + self.v[1] * x + self.v[2] * y) * self.now.at(t, side)

    def given(self, axes):
        v0, v1, v2 = self.v
        if self.way == "text":
            return f"({v0!r} + {v1!r}*x + {v2!r}*y)*{self.now.text}"

        def value(x, y, t, k=1.0):
            return k * (v0 + v1 * x + v2 * y) * self.now.function(t)

        plain = {2: lambda x, y, t: value(x, y, t), 3: lambda x, y, z, t: value(x, y, t)}
        other = {
            2: lambda x, y, k=1.0, t=0.0: value(x, y, t, k),
            3: lambda x, y, z, k=1.0, t=0.0: value(x, y, t, k),
        }
        return (plain if self.way == "function" else other)[axes]


class DrawnMarch:
    """A march, drawn: ``p`` is what does not change in time, ``moving`` the data that do, by fields and sides."""

    def __init__(self, seed, *, large=False):
        rng = np.random.default_rng([seed, 1])
        self.p = p = drawn_problems.drawn(seed, large=large)
        self.axes, self.moving = len(p.cells), {}
        self.method, self.pde = (str(rng.choice(of)) for of in (METHODS, EQUATIONS))
        whole = p.kind in WHOLE_CELLS
        held = p.kind in ("cells", "blocks") and p.sides["outline"][0].kind == "value"
        # Beside such an outline other nodes' coefficients count.
        whole &= not held
        around = any(c.kind == "periodic" for each in p.sides.values() for c in each)
        # Of equations that are not linear coefficients have the first side's values.
        if (self.pde == "advection-diffusion" and not whole) or (
            self.pde == "reaction-diffusion" and around
        ):
            self.pde = "heat"
        low = {"a": 0.3, "f": -1.0, "c": 0.1}
        low |= {"s": 0.4} if self.pde == "heat" else {}
        velocities = self.pde == "advection-diffusion" and rng.random() < 0.8
        low |= {f"b{x}": -2.0 for x in "xyz"[: self.axes]} if velocities else {}
        for name, least in low.items():
            may = name in ("f", "c", "s") or whole
            if name not in p.fields and rng.random() < (0.5 if name in "cs" else 0.0):
                continue
            if may and (rng.random() < 0.5 or name not in p.fields):
                p.data.pop(name, None)
                self.moving[name] = self._datum(rng, least)
        self.times = None  # of the source, at all times
        if "f" not in self.moving and whole and p.kind != "cells" and rng.random() < 0.5:
            self.times = rng.standard_normal((STEPS + 1, *p.nodes))
        for name, each in p.sides.items():
            for c in each:
                if (
                    c.kind == "periodic"
                    or (p.kind == "nodes" and name == "outline" and c.kind == "flux")
                    or rng.random() < 0.5
                ):
                    continue
                key = name, each.index(c)
                if p.data.get(name) in ("array", "torch") and len(each) == 1:
                    continue
                self.moving[key] = self._datum(rng, c.g0)
                if (
                    name == "outline" and p.kind in WHOLE_CELLS
                ):  # one number, as one node may be of two faces
                    self.moving[key].v = c.g0, 0.0, 0.0
                if c.kind == "exchange" and rng.random() < 0.5:
                    self.moving[(*key, "alpha")] = self._datum(rng, c.alpha, (0.0, 0.0))
        self.initial = float(rng.standard_normal()) if rng.random() < 0.3 else rng.standard_normal(p.nodes)  # fmt: skip
        if p.kind in ("disk", "polygon", "nodes", "cells", "blocks") and np.ndim(self.initial):
            self.initial = "1 + x - 2*y"

    def _datum(self, rng, low, slopes=None):
        v1, v2 = rng.uniform(0.0, 1.0, 2).tolist() if slopes is None else slopes
        way = str(rng.choice(["text", "function", "default"]))
        return Datum((float(low), v1, v2), InTime.draw(rng), way)

    def __str__(self):
        moving = {n: (d.way, d.now.switch, d.now.waves) for n, d in self.moving.items()}
        return f"{self.p} {self.pde} {self.method} times={self.times is not None} {moving}"

    @property
    def problem(self):
        p, axes = self.p, self.axes
        fields = p.given_fields | {n: d.given(axes) for n, d in self.moving.items() if isinstance(n, str)}  # fmt: skip
        if self.times is not None:
            fields["f"] = self.times
        if self.pde == "reaction-diffusion":
            fields["r"] = "0.5*u**3"
        conditions = {}
        for name, each in p.sides.items():
            for number, c in enumerate(each):
                part = name if c.ends is None else f"{name}[{c.ends[0]!r}:{c.ends[1]!r}]"
                conditions[part] = self._condition(name, number, c)
        if p.held is not None:
            conditions["pole"] = p.pole
        return m.Problem(p.domain, self.pde, fields, conditions)

    def _condition(self, name, number, c):
        values, alpha = (self.moving.get(key) for key in ((name, number), (name, number, "alpha")))
        if values is None:
            return self.p.given_condition(name, c)
        g = values.given(self.axes)
        if c.kind == "exchange":
            return m.Robin(c.alpha if alpha is None else alpha.given(self.axes), g)
        return m.Dirichlet(g) if c.kind == "value" else m.Neumann(g)

    def march(self, ranks=None, **how):
        settings = m.SolveSettings(rtol=1e-12)
        return m.march(self.problem, self.initial, dt=DT, steps=STEPS, method=self.method, ranks=ranks, settings=settings, solver_share=0, **how)  # fmt: skip
