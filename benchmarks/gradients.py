"""What the gradient by a coefficient takes beside the solve that it is of: media, flows, equations that are not linear, marches.

Writes ``benchmarks/gradients.md``.
"""

import statistics
import time
from collections.abc import Iterator

import media
import numpy as np
import torch
from common import publish, table

import mosaicdd as m

STEPS = 5
COARSE = 128

SMALL = {"cells": 64, "runs": 1}


def main(cells: int = 1024, runs: int = 3) -> None:
    """Run each case in turn, and write the medians."""
    errors = {}
    for name, gradient in cases(COARSE):  # which compiles what is compiled
        gradient()
        exact = gradient.values(adjoint_rtol=1e-12)
        change = (gradient.values() - exact) * gradient.a
        errors[name] = float(change.norm() / (exact * gradient.a).norm())
    rows = []
    for name, gradient in cases(cells):
        solve, adjoint = map(
            statistics.median, zip(*(gradient() for _ in range(runs)), strict=True)
        )
        ratio = (solve + adjoint) / solve
        rows.append([name, f"{solve:.2f}", f"{adjoint:.2f}", f"{ratio:.2f}", f"{errors[name]:.1e}"])
        print(*rows[-1], flush=True)
    header = [f"{cells} x {cells}", "plan and solve", "gradient", "both beside the solve", "error"]
    publish(
        "gradients",
        "Gradients beside their solves",
        f"Seconds of the processor, medians of {runs} "
        "runs, of one core. A solution to 1e-10 for new coefficients, which are planned for, and the gradient of the sum "
        f"of its squares by all of them, its adjoint to 1e-6; a source of 1, zeros on all sides; a march of {STEPS} steps. Error: of "
        f"the gradient by the logarithm of the coefficients, relative, at {COARSE} x {COARSE} beside that of an adjoint to 1e-12."
        f"\n\n"
        f"{table(header, rows)}",
    )


def cases(n: int) -> Iterator[tuple[str, "Gradient"]]:
    """Yield names, and what returns the seconds of a solve and of its gradient."""
    nodes, rng = (n + 1, n + 1), np.random.default_rng(0)
    y, x = np.mgrid[0 : n + 1, 0 : n + 1] / n
    gentle = np.exp(np.sin(3 * x) + np.cos(5 * y))
    of_media = {"gentle": gentle, "lognormal": media.smooth(nodes, rng)}
    of_media |= {"checkerboard": media.checkerboard(nodes), "channels": media.channels(nodes, rng)}
    for name, a in of_media.items():
        yield f"diffusion, {name}", Gradient("diffusion", {}, a=a, n=n)
    flow = media.rotating(nodes, 2.0, 1.0 / 32)
    yield "advection-diffusion, turning", Gradient("advection-diffusion", flow, a=gentle, n=n)
    yield "p-laplace, eps 0.1", Gradient("p-laplace", {"eps": 0.1}, a=gentle, n=n)
    yield "reaction-diffusion", Gradient("reaction-diffusion", {}, a=gentle, n=n)
    yield "heat, marching", Gradient("heat", {}, a=gentle, n=n, dt=1.0, steps=STEPS)


class Gradient:
    """That by ``a``; called, it solves and differentiates once, and returns the seconds of both."""

    def __init__(self, pde: str, fields: dict, *, a: np.ndarray, n: int, **march: float):
        self.a, self._march = torch.from_numpy(a).double(), march
        self._problem = m.Problem((n, n), pde, fields | {"a": a, "f": 1.0})
        self._solve = m.differentiable(self._problem, "a", **march)

    def __call__(self) -> tuple[float, float]:
        """Return the seconds of the processor of a solve, and of its gradient."""
        a = self.a.clone().requires_grad_()
        self._solve.close()
        begun = time.process_time()
        total = self._solve(a=a).square().sum()
        solved = time.process_time()
        total.backward()
        return solved - begun, time.process_time() - solved

    def values(self, adjoint_rtol: float | None = None) -> torch.Tensor:
        """Return the gradient."""
        solve = m.differentiable(self._problem, "a", adjoint_rtol=adjoint_rtol, **self._march)
        a = self.a.clone().requires_grad_()
        solve(a=a).square().sum().backward()
        return a.grad
