"""How the iteration ``v <- M v`` is driven to its fixed point: step by step, or by GMRES.

``M`` is any of the iterations (one-level or two-level). Both drivers return the last iterate and the
status of each problem; the last step is always a true one, so its update is measured, never
predicted.
"""

import functools
import itertools
from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.schwarz.iteration import Iteration
from mosaicdd.schwarz.stopping import CONVERGED, Monitor

_RESTART = 30


def chebyshev_factors(low: float, high: float, degree: int) -> tuple[float, ...]:
    """Return relaxation factors that damp errors with eigenvalues between two ends the most.

    The errors of ``degree`` steps ``v + omega_j (M v - v)`` are multiplied by the polynomial
    ``prod_j (1 - omega_j (1 - lambda))``. It is the Chebyshev polynomial of the interval if ``1 /
    omega_j = 1 - lambda_j`` at its roots (Young, 1953).
    """
    angles = np.pi * (np.arange(degree) + 0.5) / degree
    roots = (low + high) / 2 + (high - low) / 2 * np.cos(angles)
    return tuple((1 / (1 - roots)).tolist())


# The eigenvalues of the two-level iteration of the Laplace equation lie between -0.13 and 0.23 for
# any size, those below -0.1 for errors that hardly occur. First a plain step, which leaves nothing of
# an error that the coarse space holds, then three that deal with the rest: together 0.13 per iteration
# at the worst. They converge wherever eigenvalues lie between -0.8 and 1.
CHEBYSHEV = (1.0, *chebyshev_factors(-0.1, 0.23, 3))


def stationary(
    iterate: Iteration,
    v: Interface,
    monitor: Monitor,
    relaxation: Sequence[float] = (1.0,),
) -> tuple[Interface, list[str]]:
    """Repeat ``v <- v + omega (M v - v)``. ``v`` is overwritten.

    An iteration is judged by the sums that travel in the collective of the next, but at once when it
    is expected to be the last.

    Parameters
    ----------
    relaxation
        Values of ``omega``, taken in turn; by default ``v <- M v``, safe for any local solver.
    """
    old, new = v.like_boundary(), v.like_boundary()
    results = v.like() if v.problems > 1 else None
    measure = None
    begun = monitor.iterations % len(relaxation)
    factors = itertools.islice(itertools.cycle(relaxation), begun, None)
    iterate.begin()
    while True:
        residual, totals = iterate.advance(v, new, measure, next(factors))
        if measure is not None:
            _keep(results, v, monitor.enter(totals, v))
            if monitor.ended:
                iterate.finish()
                break
        old, v, new = v, new, old
        measure = functools.partial(monitor.measure, old, v, residual)
        if monitor.expects_end():
            iterate.finish()
            _keep(results, v, monitor.enter(monitor.total(measure()), v))
            measure = None
            if monitor.ended:
                break
    return (v if results is None else results), monitor.statuses


def _keep(results: Interface | None, v: Interface, ended: list[int]) -> None:
    """Keep the values of the problems that have just ended, where there are several."""
    if results is not None:
        for lines, values in zip(results.lines, v.lines, strict=True):
            lines[ended] = values[ended]


def gmres(iterate: Iteration, v: Interface, monitor: Monitor) -> tuple[Interface, list[str]]:
    """Solve ``(I - G) x = f`` by restarted GMRES, where ``M x = G x + f`` is affine.

    The residual of that system is the update. A cycle begins with a true iteration, which measures
    it; when the predicted one is small enough, the next cycle's first iteration decides.
    """
    owned = v.ownership().flat
    image = v.like_boundary()
    basis = torch.empty(_RESTART + 1, len(v.flat), device=v.flat.device, dtype=v.flat.dtype)
    failure = None
    while True:
        residual = iterate(v, image)
        status = monitor.record(v, image, residual)
        if failure and status not in CONVERGED:
            status = failure
        if status:
            return image, [status]
        torch.sub(image.flat, v.flat, out=basis[0])
        if monitor.remaining > 1:
            failure = _cycle(iterate, v, basis, owned, monitor)
        else:
            v, image = image, v


def _cycle(
    iterate: Iteration,
    v: Interface,
    basis: torch.Tensor,
    owned: torch.Tensor,
    monitor: Monitor,
) -> str | None:
    """Run Arnoldi steps from the residual in ``basis[0]`` and add the correction to ``v``."""
    beta = monitor.history.update[-1]
    basis[0] /= beta
    hessenberg = np.zeros((_RESTART + 1, _RESTART))
    rounding = torch.finfo(basis.dtype).eps * monitor.size  # no update can be measured below
    image = v.like()  # its values on the domain's edge stay zero
    for k in range(min(_RESTART, monitor.remaining - 1)):
        iterate(v.like(basis[k]), image)
        torch.sub(basis[k], image.flat, out=basis[k + 1])
        hessenberg[: k + 2, k] = _orthogonalise(basis, k + 1, owned, monitor)
        if not np.isfinite(hessenberg).all():
            return monitor.predict(np.nan)
        y, predicted = _least_squares(hessenberg[: k + 2, : k + 1], beta)
        status = monitor.predict(predicted)
        reached = monitor.rule.reached(2 * predicted, monitor.size, np.inf)
        if status or reached or predicted <= rounding:
            break
    v.flat += torch.mv(basis[: k + 1].T, torch.as_tensor(y).to(basis))
    return status


def _least_squares(hessenberg: np.ndarray, beta: float) -> tuple[np.ndarray, float]:
    """Minimise ``|beta e_1 - H y|``; return ``y`` and the minimum."""
    target = np.zeros(len(hessenberg))
    target[0] = beta
    y, *_ = np.linalg.lstsq(hessenberg, target, rcond=None)
    return y, float(np.linalg.norm(hessenberg @ y - target))


def _orthogonalise(basis: torch.Tensor, k: int, mine: torch.Tensor, monitor: Monitor) -> np.ndarray:
    """Make ``basis[k]`` orthonormal to those before; return its ``k + 1`` coefficients.

    The inner product is the mean over the interface nodes. Classical Gram-Schmidt, twice: once
    loses orthogonality with the square of the residual's reduction. One reduction over the ranks
    per pass; after the second, the norm follows without cancellation.
    """
    w, coefficients = basis[k], np.zeros(k + 1)
    for _ in range(2):
        owned = w * mine
        sums = monitor.mean(torch.mv(basis[:k], owned), torch.dot(owned, owned))
        projections, square = sums[:-1], sums[-1]
        w -= torch.mv(basis[:k].T, torch.as_tensor(projections).to(w))
        coefficients[:-1] += projections
    coefficients[-1] = np.sqrt(max(square - projections @ projections, 0.0))
    if coefficients[-1] > 0:
        w /= coefficients[-1]
    return coefficients
