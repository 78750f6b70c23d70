"""PFHub's benchmark 7: Allen and Cahn's equation with a manufactured solution, a wavy front that moves.

``du/dt - kappa lap u + 4 u (u - 1) (u - 1/2) = S`` on 1 x 1/2 to
the time 8, by BDF2 with steps of 10 spacings (units of the benchmark), ``exact``, one thread, float64. As in the
benchmark it is periodic in x, and has the value 1 below and 0 above. The error is the L2 norm at the end. Written to
``benchmarks/pfhub.md``.
"""

import numpy as np
from common import publish, table

import mosaicdd as m

KAPPA = 0.0004
_END, _STEP = 8.0, 10.0  # of time; step over spacing
_PUBLISHED = {100: "7.8e-03"}  # by spacing, of second-order codes; the finest:
_FINEST = "7.2e-05 at 1.07e-3"


def _front(x: np.ndarray, t: float) -> np.ndarray:
    """Return where the front is."""
    return 0.25 + 0.0075 * t * np.sin(8 * np.pi * x) + 0.03 * np.sin(_phase(x, t))


def _phase(x: np.ndarray, t: float) -> np.ndarray:
    return 22 * np.pi * x + 0.0625 * np.pi * t


def solution(x: np.ndarray, y: np.ndarray, t: float) -> np.ndarray:
    """Return the manufactured solution."""
    return 0.5 * (1 - np.tanh((y - _front(x, t)) / np.sqrt(2 * KAPPA)))


def source(x: np.ndarray, y: np.ndarray, t: float) -> np.ndarray:
    """Return what it takes."""
    slope = 0.06 * np.pi * t * np.cos(8 * np.pi * x) + 0.66 * np.pi * np.cos(_phase(x, t))
    bend = -0.48 * np.pi**2 * t * np.sin(8 * np.pi * x) - 14.52 * np.pi**2 * np.sin(_phase(x, t))
    speed = 0.0075 * np.sin(8 * np.pi * x) + 0.001875 * np.pi * np.cos(_phase(x, t))
    z = (y - _front(x, t)) / np.sqrt(2 * KAPPA)
    steep = -2 * np.sqrt(KAPPA) * np.tanh(z) * slope**2 + np.sqrt(2) * (speed - KAPPA * bend)
    return steep / (4 * np.sqrt(KAPPA) * np.cosh(z) ** 2)


def problem(cells: int) -> m.Problem:
    """Return the benchmark with so many cells along x."""
    fields = {"a": KAPPA, "r": "4*u*(u - 1)*(u - 0.5)", "f": source}
    domain = m.Domain((cells // 2, cells), 1 / cells)
    sides = {"left": m.Periodic(), "right": m.Periodic()}
    sides |= {"bottom": m.Dirichlet(1.0), "top": m.Dirichlet(0.0)}
    return m.Problem(domain, "reaction-diffusion", fields, sides)


def initial(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the values at time 0."""
    return solution(x, y, 0.0)


def error(series: m.Series) -> float:
    """Return the L2 norm of the last field's error."""
    truth = solution(series.x, series.y[:, None], series.times[-1])
    return float(np.linalg.norm((series.field - truth)[:, :-1]) * series.x[1])


SMALL = {"cells": [20]}


def main(*, cells: list[int] = (100, 200, 400)) -> None:
    """Measure the table, and write it."""
    rows: list[list[str]] = []
    for size in cells:
        dt = _STEP / size
        steps = round(_END / dt)
        series = m.march(problem(size), initial, dt=dt, steps=steps, every=steps)
        newton, difference = np.mean(series.steps["iterations"]), error(series)
        figures = [f"{newton:.1f}", f"{difference:.1e}"]
        rows.append([f"1/{size}", str(steps), *figures, _PUBLISHED.get(size, "")])
    header = ["spacing", "steps", "Newton's per step", "L2 error", "published"]
    publish(
        "pfhub",
        "PFHub's benchmark 7",
        f"Published: of second-order codes; the finest {_FINEST}.",
        table(header, rows),
    )
