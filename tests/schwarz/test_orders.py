"""Linear equations are solved with errors of second order: sides, periods, outlines, media, velocities, in the plane and in boxes."""

from dataclasses import dataclass

import numpy as np
import pytest
import sympy

import mosaicdd as m

X, Y, Z = PLACES = sympy.symbols("x y z")
NOTHING, ONE = sympy.Integer(0), sympy.Integer(1)
AXES = {"left": (0, -1), "right": (0, 1), "bottom": (1, -1), "top": (1, 1), "back": (2, -1), "front": (2, 1)}  # fmt: skip
PLANE, WAVE = sympy.exp(X / 2) * sympy.sin(2 * Y) + X * Y, sympy.sin(2 * sympy.pi * X + 1)
SPACE = sympy.exp(X / 2) * sympy.sin(2 * Y) * sympy.cos(Z) + X * Y * Z
MEDIUM = 1 + X + Y**2
TURNING = (3 * Y, 1 - X)


def away(*centre):
    return sympy.sqrt(sum((p - c) ** 2 for p, c in zip(PLACES, centre, strict=False)))


def shell(r, middle, half):
    return sympy.sqrt((r - middle) ** 2) - half


@dataclass
class Case:
    """A solution ``u`` of ``-div(a grad u) + b . grad u + c u = f``, and what holds on sides and outlines.

    Parameters
    ----------
    sides
        By name ``value``, ``flux``, ``period``, or the exchange's coefficient; of others values.
    level
        Negative inside.
    cells, lengths
        Of the coarsest grid, along ``(.., y, x)``.
    times
        How much finer the others are.
    least
        Orders, of the largest error and of the root mean square.
    """

    u: sympy.Expr
    sides: dict
    a: sympy.Expr = ONE
    b: tuple = ()
    c: sympy.Expr = NOTHING
    level: sympy.Expr | None = None
    cells: tuple = (16, 20)
    lengths: tuple = (1.0, 1.25)
    times: tuple = (1, 2, 4)
    least: tuple = (1.85, 1.85)

    def flux(self, name):
        """Return ``a du/dn`` outward of a side or an outline."""
        side, places = name.partition("[")[0], PLACES[: len(self.cells)]
        if side in AXES:
            axis, sign = AXES[side]
            return sign * self.a * self.u.diff(places[axis])
        normal = [self.level.diff(p) for p in places]
        size = sympy.sqrt(sum(n**2 for n in normal))
        return self.a * sum(self.u.diff(p) * n for p, n in zip(places, normal, strict=True)) / size

    def condition(self, name, kind):
        if kind == "period":
            return m.Periodic()
        if kind == "value":
            return m.Dirichlet(str(self.u))
        if kind == "flux":
            return m.Neumann(str(self.flux(name)))
        alpha = sympy.sympify(kind)
        given = float(alpha) if alpha.is_number else str(alpha)
        return m.Robin(given, str(self.flux(name) + alpha * self.u))

    def errors(self, k):
        """Return the largest error and the root mean square on a grid ``k`` times as fine as the first."""
        places = PLACES[: len(self.cells)]
        f = self.c * self.u - sum((self.a * self.u.diff(p)).diff(p) for p in places)
        f += sum(b * self.u.diff(p) for b, p in zip(self.b, places, strict=False))
        fields = {"f": str(f)} | ({} if self.a == 1 else {"a": str(self.a)})
        fields |= {f"b{x}": str(b) for x, b in zip("xyz", self.b, strict=False)}
        fields |= {"c": str(self.c)} if self.c != 0 else {}
        cells = tuple(k * n for n in self.cells)
        spacing = tuple(length / n for length, n in zip(self.lengths, cells, strict=True))
        domain = m.Domain(cells, spacing)
        if self.level is not None:
            domain = m.Domain.from_distance(str(self.level), cells, spacing)
        rest = dict.fromkeys([*AXES][: 2 * len(cells)], "value") if self.level is None else {"outline": "value"}  # fmt: skip
        sides = {n: self.condition(n, kind) for n, kind in (rest | self.sides).items()}
        pde = "advection-diffusion" if self.b else "diffusion"
        solution = m.solve(m.Problem(domain, pde, fields, sides), "exact", rtol=1e-10)
        assert solution.status == "converged_rtol"
        along = (h * np.arange(n + 1) for h, n in zip(spacing, cells, strict=True))
        exact = sympy.lambdify(places, self.u, "numpy")
        off = solution.field - exact(*np.meshgrid(*along, indexing="ij")[::-1])
        return np.nanmax(abs(off)), np.sqrt(np.nanmean(off**2))


KINDS = {"left": "flux", "right": 3.0, "bottom": "flux", "bottom[0.5:0.75]": "value"}
VARYING = {"left": "1 + 5*sin(3*x + 4*y)**2", "top": 2.0, "bottom": "1 + x"}
ROUND_X, ROUND_Y = dict.fromkeys(("left", "right"), "period"), dict.fromkeys(("bottom", "top"), "period")  # fmt: skip
UNIT = {"cells": (20, 20), "lengths": (1.0, 1.0)}
CENTRE = away(0.5, 0.52)
RING = {"level": shell(CENTRE, 0.3, 0.113), "cells": (32, 32), "lengths": (1.0, 1.0), "least": (1.8, 1.85)}  # fmt: skip
FLOWING = {"level": shell(away(1, 1), 0.57, 0.26), "cells": (32, 32), "lengths": (2.0, 2.0), "b": (-30 * (Y - 1), 30 * (X - 1)), "least": (1.8, 1.85)}  # fmt: skip
STRIP = {"level": 0.15 + 0.05 * sympy.sin(2 * sympy.pi * X + 1) - Y, "cells": (25, 25), "lengths": (1.0, 1.0), "least": (1.75, 1.75)}  # fmt: skip
DISC = {"level": away(6, 3) - 2.3, "cells": (40, 40), "lengths": (6.0, 12.0), "least": (1.6, 1.8)}
FAR = sympy.exp(0.3 * X) * sympy.sin(0.4 * Y)
SHELL = {"level": shell(away(0.5, 0.52, 0.49), 0.3, 0.113), "cells": (12, 12, 12), "lengths": (1.0,) * 3, "times": (1, 2, 3), "a": MEDIUM + Z / 2, "least": (1.4, 1.75)}  # fmt: skip
BALL = {"level": away(2, 2, 1.5) - 1.2, "cells": (14, 8, 11), "lengths": (3.0, 4.0, 4.0), "least": (1.5, 1.8)}  # fmt: skip
BOX = {"cells": (6, 4, 6), "lengths": (1.0, 0.66, 1.0), "times": (2, 4, 8)}
PARTS = {"left[0.13:0.67, :0.41]": 20.0, "left": "flux", "back[0.25:0.75, 0.5:]": "value", "back": 1.0, "top[0.3:, 0.2:0.9]": "flux", "top": 7.0}  # fmt: skip
CASES = {
    "sides": Case(PLANE, KINDS, c=sympy.Integer(2)),
    "sides of a medium": Case(PLANE, KINDS, MEDIUM, c=sympy.Integer(2)),
    "sides of a flow": Case(PLANE, KINDS, MEDIUM, TURNING, sympy.Integer(2)),
    "exchange that varies": Case(PLANE, VARYING),
    "oblong cells": Case(PLANE, KINDS, MEDIUM, cells=(32, 16), lengths=(1.0, 3.0)),
    "periods along x": Case(WAVE * sympy.exp(Y / 2), ROUND_X | {"top": "flux"}, **UNIT),
    "periods of a medium": Case(WAVE * sympy.exp(Y / 2), ROUND_X | {"top": "flux"}, 1.5 + WAVE * Y / 2, **UNIT),
    "periods along both": Case(WAVE * sympy.cos(2 * sympy.pi * Y), ROUND_X | ROUND_Y, 1.5 + WAVE / 2, c=ONE, **UNIT),
    "periods of a flow": Case(WAVE * sympy.exp(Y / 2), ROUND_X, b=(20 + sympy.sin(6 * Y), sympy.Integer(5)), c=ONE, **UNIT, times=(2, 4, 8)),
    "a disk": Case(PLANE, {}, level=CENTRE - 0.41, cells=(32, 32), lengths=(1.0, 1.0)),
    "a ring": Case(PLANE, {}, **RING),
    "a ring of a medium with a flux": Case(PLANE, {"hole1": "flux"}, MEDIUM, **RING),
    "a ring with an exchange": Case(PLANE, {"hole1": 3.0}, **RING),
    "a ring with an exchange that varies": Case(PLANE, {"hole1": "1 + 5*sin(3*x + 4*y)**2"}, MEDIUM, **RING),
    "a flow in a ring": Case(PLANE, {}, **FLOWING),
    "a flow in a ring with a flux": Case(PLANE, {"hole1": "flux"}, **FLOWING),
    "a wavy bottom": Case(WAVE * sympy.exp(Y), ROUND_X | {"top": "value"}, **STRIP),
    "a wavy bottom with a flux": Case(WAVE * sympy.exp(Y), ROUND_X | {"top": "value", "outline": "flux"}, 1.5 + WAVE * Y / 2, **STRIP),
    "a wavy bottom with an exchange": Case(WAVE * sympy.exp(Y), ROUND_X | {"top": "value", "outline": 2.0}, **STRIP),
    "a disc in oblong cells": Case(FAR, {}, **DISC),
    "a disc in oblong cells with an exchange": Case(FAR, {"outline": 1.5}, **DISC),
    "a box": Case(SPACE, {}, c=sympy.Integer(2), **BOX),
    "a box of a medium": Case(SPACE, {"left": "flux", "right": 2.0, "top": "flux", "back": 1.0, "front": "flux"}, MEDIUM + X * Z / 2, c=ONE, **BOX),
    "a flow in a box": Case(WAVE * sympy.sin(3 * Y) * sympy.cos(2 * Z), ROUND_X, b=(2 + Y, 5 * Z, sympy.Integer(-3)), c=sympy.Rational(1, 2), cells=(10, 10, 10), lengths=(1.0,) * 3, times=(1, 2, 3)),
    "parts of sides of a box": Case(SPACE, PARTS, cells=(8, 8, 8), lengths=(1.0,) * 3, least=(1.75, 1.75)),
    "a shell": Case(SPACE, {}, **SHELL),
    "a shell with a flux": Case(SPACE, {"hole1": "flux"}, **SHELL),
    "a shell with an exchange": Case(SPACE, {"hole1": 3.0}, **SHELL),
    "a ball in oblong cells": Case(FAR + Z**2 / 5, {}, **BALL),
    "a ball in oblong cells with an exchange": Case(FAR + Z**2 / 5, {"outline": 1.5}, **BALL),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_errors_are_of_second_order(name):
    case = CASES[name]
    found = [case.errors(k) for k in case.times]
    # How an outline lies in the cells changes from grid to grid, and with it the constant.
    orders = -np.polyfit(np.log(case.times), np.log(found), 1)[0]
    assert (orders > case.least).all(), (orders, found)
