"""How fast the two-level iteration converges for an operator, and what follows from it.

The eigenvalues of the iteration with the exact local solver are measured once per operator, by a few
steps of Arnoldi's method on a small lattice: they do not depend on the domain's size. From them come
the number of coarse nodes, the way to drive the iteration, its relaxation factors, and how much of an
error one iteration sees.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.schwarz.drivers import chebyshev_factors
from mosaicdd.schwarz.method import SharedMethod
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.sweep import Task

_LATTICE = 8  # lattice cells along a side of the small lattice
_STEPS = 12  # of Arnoldi's method, which finds the outermost eigenvalues first
_CYCLE = 3  # relaxed steps after a plain one
_SLOW = 0.18  # contraction per iteration above which the cycle is not worth it (Laplace: 0.14)
_FLOW = 4.0  # Peclet number of a subdomain above which eigenvalues say little
_LARGEST = 0.998  # eigenvalue that is reckoned with
_SLOW_LATTICE, _SLOW_STEPS = 24, 30  # where it takes longer walks to see the slowest errors
_FINER = 2  # coarse nodes per lattice cell where one is too few
_SAFETY = 1.5  # of an error estimate: on larger lattices eigenvalues are a little larger

# Laplace's, as `measure_spectrum` finds it on larger lattices, where errors below -0.1 hardly occur;
# measured anew by a test.
_LAPLACE = {2: (-0.1, 0.23), 3: (-0.09, 0.39)}  # by the number of axes
# rho = 1/3, in space 1/2: single errors of a network fade by up to 0.25 (in space 0.4) per iteration
_LAPLACE_SAFETY = {2: 1.5, 3: 2.0}


@dataclass(frozen=True)
class Scheme:
    """How the two-level iteration of an operator is driven."""

    points: int  # coarse nodes per lattice cell along a line
    acceleration: str  # ``"chebyshev"`` or ``"gmres"``: what drives it best in float64
    factors: tuple[float, ...]  # relaxation factors of the Chebyshev cycle
    # ``1 / (1 - rho)``, and a margin: the error is at most so many times the update of one
    # iteration
    safety: float


def scheme_of(
    operator: EllipticOperator, subdomain: Subdomain, points: int | None = None
) -> Scheme:
    """Return the scheme for an operator on subdomains of this kind; measured once per process.

    ``points``: coarse nodes per lattice cell along a line; by default as many as the spectrum asks for.
    """
    if operator.symmetric and operator.scale_free and points in (None, 1):
        factors = _cycle(*_LAPLACE[subdomain.axes])
        return Scheme(1, "chebyshev", factors, _LAPLACE_SAFETY[subdomain.axes])
    return _measured(operator, subdomain, points)


@lru_cache(maxsize=64)
def _measured(operator: EllipticOperator, subdomain: Subdomain, points: int | None) -> Scheme:
    eigenvalues = measure_spectrum(operator, subdomain, points or 1)
    factors = _cycle(eigenvalues.real.min(), min(eigenvalues.real.max(), _LARGEST))
    damped = np.prod([1 - omega * (1 - eigenvalues) for omega in factors], axis=0)
    peclet = np.hypot(operator.by, operator.bx) * subdomain.size / min(operator.ayy, operator.axx)
    fast = np.abs(damped).max() ** (1 / len(factors)) <= _SLOW and peclet <= _FLOW
    if fast or subdomain.axes > 2:  # in space there are no finer coarse spaces
        return Scheme(points or 1, "chebyshev", factors, _safety(eigenvalues))
    points = points or _FINER
    longer = {"cells": _SLOW_LATTICE, "steps": _SLOW_STEPS}
    eigenvalues = measure_spectrum(operator, subdomain, points, **longer)
    factors = _cycle(eigenvalues.real.min(), min(eigenvalues.real.max(), _LARGEST))
    return Scheme(points, "gmres", factors, _safety(eigenvalues))


def _cycle(low: float, high: float) -> tuple[float, ...]:
    """First a plain step, which leaves nothing of what the coarse space holds; then the others."""
    return (1.0, *chebyshev_factors(low, high, _CYCLE))


def _safety(eigenvalues: np.ndarray) -> float:
    return _SAFETY / (1 - min(np.abs(eigenvalues).max(), _LARGEST))


def measure_spectrum(
    operator: EllipticOperator,
    subdomain: Subdomain,
    points: int,
    *,
    cells: int = _LATTICE,
    steps: int = _STEPS,
) -> np.ndarray:
    """Return Ritz values of the two-level iteration on a lattice of ``cells`` x ``cells``.

    ``points``: coarse nodes per lattice cell along a line; ``steps``: of Arnoldi's method, from random values.
    """
    side = cells * subdomain.cells // 2
    lattice = Lattice(Grid((side,) * subdomain.axes, subdomain.spacing), subdomain)
    block = Block.whole(lattice)
    task = Task(Ranks.alone().fitted(lattice.subdomains), block, SolveSettings())
    iterate = SharedMethod(task, ExactSolver(operator, subdomain), points).iterate
    image = Interface(block, **task.tensors)
    owned = image.ownership().flat
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(len(owned), generator=generator, dtype=owned.dtype) * owned
    image.like(vector).match_copies()
    basis, hessenberg = [], np.zeros((steps + 1, steps))
    norm = _norm(vector, owned)
    for k in range(steps):
        basis.append(vector / norm)
        iterate(image.like(basis[k]), image)
        vector = image.flat.clone()
        for _ in range(2):
            for j, other in enumerate(basis):
                part = float(torch.dot(vector * owned, other))
                hessenberg[j, k] += part
                vector -= part * other
        norm = hessenberg[k + 1, k] = _norm(vector, owned)
        if norm < 1e-10:
            return np.linalg.eigvals(hessenberg[: k + 1, : k + 1])
    return np.linalg.eigvals(hessenberg[:steps])


def _norm(vector: torch.Tensor, owned: torch.Tensor) -> float:
    return float((vector * owned).norm())
