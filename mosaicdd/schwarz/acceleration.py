"""How the iteration ``v <- M v`` is driven to its fixed point: as it is, or by GMRES.

``M`` is any of the iterations (one-level or two-level). Both drivers return the last ``M v`` and
its status; the last iteration is always a true one, so its update is measured, never predicted.
"""

from collections.abc import Callable

import numpy as np
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.schwarz.stopping import CONVERGED, Monitor

Iteration = Callable[[Interface, Interface], torch.Tensor]
"""Writes ``M v`` to its second argument; returns ``R (T v - v)`` at the owned lattice nodes."""

_RESTART = 30


def stationary(iterate: Iteration, v: Interface, monitor: Monitor) -> tuple[Interface, str]:
    """Repeat ``v <- M v``; safe for any local solver. ``v`` is overwritten."""
    new = v.like()
    new.copy_boundary(v)
    while True:
        residual = iterate(v, new)
        status = monitor.record(v, new, residual)
        v, new = new, v
        if status:
            return v, status


def gmres(iterate: Iteration, v: Interface, monitor: Monitor) -> tuple[Interface, str]:
    """Solve ``(I - G) x = f`` by restarted GMRES, where ``M x = G x + f`` is affine.

    The residual of that system is the update. A cycle begins with a true iteration, which measures
    it; when the predicted one is small enough, the next cycle's first iteration decides.
    """
    image = v.like()
    image.copy_boundary(v)
    basis = torch.empty(_RESTART + 1, len(v.flat), device=v.flat.device, dtype=v.flat.dtype)
    failure = None
    while True:
        residual = iterate(v, image)
        status = monitor.record(v, image, residual)
        if failure and status not in CONVERGED:
            status = failure
        if status:
            return image, status
        torch.sub(image.flat, v.flat, out=basis[0])
        if monitor.remaining > 1:
            failure = _cycle(iterate, v, basis, monitor)
        else:
            v, image = image, v


def _cycle(iterate: Iteration, v: Interface, basis: torch.Tensor, monitor: Monitor) -> str | None:
    """Run Arnoldi steps from the residual in ``basis[0]`` and add the correction to ``v``."""
    beta = monitor.history.update[-1]
    basis[0] /= beta
    hessenberg = np.zeros((_RESTART + 1, _RESTART))
    rounding = torch.finfo(basis.dtype).eps * monitor.size  # no update can be measured below
    image = v.like()  # its values on the domain's edge stay zero
    for k in range(min(_RESTART, monitor.remaining - 1)):
        iterate(v.like(basis[k]), image)
        torch.sub(basis[k], image.flat, out=basis[k + 1])
        hessenberg[: k + 2, k] = _orthogonalise(basis, k + 1, monitor)
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


def _orthogonalise(basis: torch.Tensor, k: int, monitor: Monitor) -> np.ndarray:
    """Make ``basis[k]`` orthonormal to those before; return its ``k + 1`` coefficients.

    The inner product is the mean over the interface nodes. Classical Gram-Schmidt, twice: once
    loses orthogonality with the square of the residual's reduction. One reduction over the ranks
    per pass; after the second, the norm follows without cancellation.
    """
    w, coefficients = basis[k], np.zeros(k + 1)
    for _ in range(2):
        owned = w * monitor.owned
        sums = monitor.mean(torch.mv(basis[:k], owned), torch.dot(owned, owned))
        projections, square = sums[:-1], sums[-1]
        w -= torch.mv(basis[:k].T, torch.as_tensor(projections).to(w))
        coefficients[:-1] += projections
    coefficients[-1] = np.sqrt(max(square - projections @ projections, 0.0))
    if coefficients[-1] > 0:
        w /= coefficients[-1]
    return coefficients
