"""The heat slab of the Mosaic benchmark of differentiable solvers (Pasteur Labs, arXiv 2606.27895), forward and gradient.

On [0, 2] x [0, 1] there are NX x NX / 2 bilinear elements with
the conductivity ``1e-3 + 0.999 rho^3`` of a random density, 0 on the left and a flux of 1 on the right. *Forward* is from
the density to the compliance, *both* to its gradient by the density, too, through the library, in float64 to a relative
residual of 1e-8, on one thread: the medians of three, in seconds of the clock and of the processor, as others may use the
machine. *Differences* is how far the gradient is from central differences in a random direction, relative to these.
Published seconds are those of the benchmark's paper, on its own machines. Writes ``benchmarks/heat_slab.md``.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import publish, table
from slab_peers import installed_peers

import mosaicdd as m

_SETTINGS = m.SolveSettings(rtol=1e-8)
_STEP = 1e-4
_MOST_OF_PEERS = 1024
_PUBLISHED = """\
Published, forward and gradient in seconds: torch-fem on a T4 13.3 and 29.1 at 1024, Firedrake 116 and 244 at 1024, JAX-FEM
85.8 at 1024 and 33.8 at 512, deal.II 83.9 at 1024, FEniCS 11.8 and 29 at 512."""


def density_of(nx: int) -> np.ndarray:
    """Return the density of each element, ``(nx / 2, nx)``."""
    ny = nx // 2
    noise = np.random.default_rng(0).standard_normal(nx * ny).astype(np.float32)
    return np.clip(0.5 + 0.3 * noise, 0.05, 0.95).reshape(ny, nx).astype(float)


def slab(density: np.ndarray) -> m.Problem:
    """Return the problem for the temperatures."""
    ny, nx = density.shape
    sides = {"left": m.Dirichlet(0.0), "right": m.Neumann(1.0)}
    insulated = {"top": m.Neumann(0.0), "bottom": m.Neumann(0.0)}
    fields = {"a": 1e-3 + 0.999 * density**3}
    domain = m.Domain((ny, nx), 2 / nx)
    return m.Problem(domain, "bilinear-diffusion", fields, {**sides, **insulated})


def solved(density: np.ndarray) -> m.Solution:
    """Return the temperatures."""
    return m.solve(slab(density), settings=_SETTINGS)


def loads_of(density: np.ndarray) -> np.ndarray:
    """Return what each node's temperature counts in the compliance, of a layer as deep as an element is wide."""
    ny, nx = density.shape
    loads = np.zeros((ny + 1, nx + 1))
    loads[:, -1] = 1.0 / ny
    loads[[0, -1], -1] /= 2
    return loads / (2 / nx)


SMALL = {"sizes": [32]}


def main(sizes: list[int] = (256, 1024)) -> None:
    """Solve, print and write the table."""
    rows, peers = [], []
    for nx in sizes:
        row, gradient = _row(nx)
        rows.append(row)
        print(row, flush=True)
        if nx <= _MOST_OF_PEERS:
            peers += _peers_rows(nx, gradient, float(row[-2]))
    header = ["NX", "compliance", "iterations", "residual"]
    header += ["forward", "processor", "both", "processor", "differences"]
    beside = table(
        ["NX", "by", "compliance", "both", "ratio to ours", "gradient beside ours"], peers
    )
    missing = "scikit-fem and torch-fem are not installed here."
    title = "Mosaic's heat slab, forward and gradient"
    publish("heat_slab", title, table(header, rows), beside if peers else missing, _PUBLISHED)


def _row(nx: int) -> tuple[list[str], np.ndarray]:
    """Return what a size takes, and the gradient."""
    density = density_of(nx)
    loads, slope = loads_of(density), 3 * 0.999 * density**2

    def both() -> np.ndarray:
        with m.Solver(slab(density), settings=_SETTINGS) as solver:
            return m.adjoint(solver(), loads, solver=solver)["a"] * slope

    solution, forward = _median(lambda: solved(density))
    gradient, with_gradient = _median(both)
    along = np.random.default_rng(1).standard_normal(density.shape)
    ahead, back = ((loads * solved(density + s * _STEP * along).field).sum() for s in (1, -1))
    difference = (ahead - back) / (2 * _STEP)
    off = abs((gradient * along).sum() / difference - 1)
    compliance = f"{(loads * solution.field).sum():.8g}"
    known = [compliance, str(solution.iterations), f"{solution.report['discrete_residual']:.1e}"]
    return [str(nx), *known, *forward, *with_gradient, f"{off:.1e}"], gradient


def _peers_rows(nx: int, gradient: np.ndarray, seconds: float) -> list[list[str]]:
    """Return what the same takes by others, after a call that loads them."""
    rows = []
    for name, peer in installed_peers().items():
        peer(density_of(8), _SETTINGS.rtol)
        begun = time.process_time()
        compliance, by_peer = peer(density_of(nx), _SETTINGS.rtol)
        taken = time.process_time() - begun
        off = np.linalg.norm(by_peer - gradient) / np.linalg.norm(gradient)
        rows.append(
            [
                str(nx),
                name,
                f"{compliance:.8g}",
                f"{taken:.2f}",
                f"{taken / seconds:.1f}",
                f"{off:.1e}",
            ]
        )
        print(rows[-1], flush=True)
    return rows


def _median(function: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return what a function returns, and the medians of its seconds, of the clock and of the processor."""
    seconds = []
    for _ in range(3):
        begun = time.perf_counter(), time.process_time()
        answer = function()
        seconds.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    return answer, [f"{np.median(each):.2f}" for each in zip(*seconds, strict=True)]
