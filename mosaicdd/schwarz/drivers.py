"""Drivers of the iteration ``v <- M v``: stationary, relaxed, GMRES, quasi-Newton, Anderson.

``M`` is any of the iterations (one-level or two-level). All drivers return the last iterate and the
status of each problem; the last step is always a true one, so its update is measured, never
predicted.

Of those for local solvers that are not linear, the quasi-Newton method needs the fewest sweeps: such a
solver differs little from the exact one, whose linear iteration stands in for its derivative.

Anderson acceleration needs no derivative, and has the residual as its judge. Its next
iterate is ``M`` of the combination of the last ones with the smallest residual ``M v - v``.
Extrapolation can run away, or stand still where ``M v != v`` (a false fixed point), so every iterate is
judged by its own residual, measured by a true iteration: where that grows, the combination is dropped
and the iteration goes on from the best iterate, stationary for a step.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.schwarz.fixed_point import Iteration
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.monitor import Monitor, UpdateSums

_RESTART = 30  # vectors: with two levels some ten are enough, with one level memory comes first


def chebyshev_factors(low: float, high: float, degree: int) -> tuple[float, ...]:
    """Return relaxation factors that damp errors with eigenvalues between two ends the most.

    The errors of ``degree`` steps ``v + omega_j (M v - v)`` are multiplied by the polynomial
    ``prod_j (1 - omega_j (1 - lambda))``. It is the Chebyshev polynomial of the interval if ``1 /
    omega_j = 1 - lambda_j`` at its roots (Young, 1953).
    """
    angles = np.pi * (np.arange(degree) + 0.5) / degree
    roots = (low + high) / 2 + (high - low) / 2 * np.cos(angles)
    return tuple((1 / (1 - roots)).tolist())


def stationary(
    iterate: Iteration, v: Interface, monitor: Monitor, relaxation: Sequence[float] = (1.0,)
) -> tuple[Interface, list[str]]:
    """Repeat ``v <- v + omega (M v - v)``. ``v`` is overwritten, and with another one all that is held.

    An iteration is judged by the sums that travel in the collective of the next, but at once when it
    is expected to be the last.
    ``relaxation``: values of ``omega``, taken in turn; by default ``v <- M v``, safe for any local solver.
    """
    held, new = v, v.like_boundary()
    measure: UpdateSums | None = None
    begun = monitor.iterations % len(relaxation)
    factors = itertools.islice(itertools.cycle(relaxation), begun, None)
    iterate.begin(v)
    while True:
        residual, totals = iterate.advance(v, new, measure, next(factors))
        if totals is not None:
            monitor.enter(totals, v)
            if monitor.ended:
                iterate.finish()
                break
        v, new = new, v
        measure = UpdateSums(monitor, new, v, residual)
        if monitor.expects_end():
            iterate.finish()
            monitor.enter(monitor.total(measure.rest()), v)
            measure = None
            if monitor.ended:
                break
    held.become(monitor.result(v))  # who holds it holds no other
    return held, monitor.final_statuses


def gmres(iterate: Iteration, v: Interface, monitor: Monitor) -> tuple[Interface, list[str]]:
    """Solve ``(I - G) x = f`` by restarted GMRES, where ``M x = G x + f`` is affine.

    The residual of that system is the update. A cycle begins with a true iteration, which measures
    it; when the predicted one is small enough, the next cycle's first iteration decides. Several
    problems are solved side by side, each in its own space, for as long as the slowest needs.
    """
    shape = v.problems, len(v.flat) // v.problems
    owned = v.ownership().flat.view(shape)
    image = v.like_boundary()
    direction = v.like()  # its values on the domain's edge stay zero
    basis = v.flat.new_empty(_RESTART + 1, *shape)
    offset: torch.Tensor | None = None
    failures: dict[int, str] = {}
    if iterate.affine:  # what the source adds to every image: that of zero
        target = v.like()
        iterate(direction, target)
        offset = target.flat
    while True:
        residual = iterate(v, image)
        monitor.record(v, image, residual, failures)
        if monitor.ended:
            return monitor.result(image), monitor.final_statuses
        torch.sub(image.flat, v.flat, out=basis[0].view(-1))
        if monitor.remaining > 1:
            failures = _cycle(iterate, v, direction, basis, owned, offset, monitor)
        else:
            v, image = image, v


def _cycle(
    iterate: Iteration,
    v: Interface,
    image: Interface,
    basis: torch.Tensor,
    owned: torch.Tensor,
    offset: torch.Tensor | None,
    monitor: Monitor,
) -> dict[int, str]:
    """Run Arnoldi steps from the residuals in ``basis[0]`` and add the corrections to ``v``.

    Returns the problems that cannot go on, and why.
    """
    count = v.problems
    beta = np.array([history.update[-1] for history in monitor.histories])
    basis[0] /= torch.as_tensor(np.where(beta > 0, beta, 1.0)).to(basis)[:, None]
    hessenberg = np.zeros((count, _RESTART + 1, _RESTART))
    rounding = torch.finfo(basis.dtype).eps * monitor.sizes  # no update can be measured below
    running = [i for i, status in enumerate(monitor.statuses) if status is None]
    failures = {}
    for k in range(min(_RESTART, monitor.remaining - 1)):
        iterate(v.like(basis[k].view(-1)), image)
        if offset is not None:
            image.flat -= offset
        torch.sub(basis[k].view(-1), image.flat, out=basis[k + 1].view(-1))
        hessenberg[:, : k + 2, k] = _orthogonalise(basis, k + 1, owned, monitor)
        if not np.isfinite(hessenberg[running]).all():
            return monitor.predict(np.full(count, np.nan))
        solved = [
            _least_squares(h[: k + 2, : k + 1], b) for h, b in zip(hessenberg, beta, strict=True)
        ]
        predicted = np.array([minimum for _, minimum in solved])
        failures = monitor.predict(predicted)
        enough = [
            monitor.reached(i, 2 * predicted[i], monitor.sizes[i], np.inf)
            or predicted[i] <= rounding[i]
            for i in running
        ]
        if failures or all(enough):
            break
    y = torch.as_tensor(np.stack([y for y, _ in solved])).to(basis)  # (n, k + 1)
    used = basis[: k + 1].transpose(0, 1)  # (n, k + 1, N)
    v.flat += torch.bmm(y[:, None], used).view(-1)
    return failures


def _least_squares(hessenberg: np.ndarray, beta: float) -> tuple[np.ndarray, float]:
    """Minimise ``|beta e_1 - H y|``; return ``y`` and the minimum."""
    target = np.zeros(len(hessenberg))
    target[0] = beta
    y, *_ = np.linalg.lstsq(hessenberg, target, rcond=None)
    return y, float(np.linalg.norm(hessenberg @ y - target))


def _orthogonalise(basis: torch.Tensor, k: int, mine: torch.Tensor, monitor: Monitor) -> np.ndarray:
    """Make ``basis[k]`` orthonormal to those before; return its coefficients, ``(n, k + 1)``.

    The inner product is the mean over the interface nodes. Classical Gram-Schmidt, twice: once
    loses orthogonality with the square of the residual's reduction. One reduction over the ranks
    per pass; after the second, the norm follows without cancellation.
    """
    w, before = basis[k], basis[:k].transpose(0, 1)  # (n, N), (n, k, N)
    coefficients = np.zeros((len(w), k + 1))
    for _ in range(2):
        owned = w * mine
        sums = monitor.mean(
            torch.bmm(before, owned[..., None]), torch.bmm(owned[:, None], owned[..., None])
        )
        projections = sums[: -len(w)].reshape(len(w), k)
        squares = sums[-len(w) :]
        w -= torch.bmm(torch.as_tensor(projections).to(w)[:, None], before).squeeze(1)
        coefficients[:, :-1] += projections
    rest = squares - np.einsum("nk,nk->n", projections, projections)
    norms = coefficients[:, -1] = np.sqrt(np.maximum(rest, 0.0))
    w /= torch.as_tensor(np.where(norms > 0, norms, 1.0)).to(w)[:, None]
    return coefficients


_GROWN = 2.0  # of the update, above which a step did harm


def quasi_newton(
    iterate: Iteration,
    v: Interface,
    monitor: Monitor,
    linear: Iteration,
    relaxation: Sequence[float],
) -> tuple[Interface, list[str]]:
    """Repeat ``v <- v + (I - G)^-1 (M v - v)``; ``v`` is overwritten.

    ``G`` is the linear part of an iteration like ``M``, many times cheaper. Its system is solved
    roughly, by relaxed steps ``e <- e + omega (G e + r - e)`` from ``r = M v - v``. The fixed point is that
    of ``M`` alone, and so is every update. Where the update doubles, ``G`` is no derivative of ``M``: then
    the next step is ``v <- M v``.
    ``linear``: the iteration with the exact local solver; ``relaxation``: ``omega`` of the inner steps.
    """
    image, r, e, swept = v.like_boundary(), v.like(), v.like(), v.like()
    offset: torch.Tensor | None = None
    if linear.affine:  # what the source adds
        linear(e, swept)
        offset = swept.flat.clone()
    before = np.inf
    while True:
        residual = iterate(v, image)
        monitor.record(v, image, residual)
        if monitor.ended:
            return monitor.result(image), monitor.final_statuses
        update = max(history.update[-1] for history in monitor.histories)
        if update > _GROWN * before:
            v, image, before = image, v, np.inf
            continue
        before = update
        torch.sub(image.flat, v.flat, out=r.flat)
        e.flat.copy_(r.flat)
        for omega in relaxation:
            linear(e, swept)
            if offset is not None:
                swept.flat -= offset
            swept.flat += r.flat
            e.flat.lerp_(swept.flat, omega)
        v.flat += e.flat


_DEPTH = 5  # last iterates that are combined: each costs two vectors and a row of sums
_GROWTH = 1.0  # of the update, above which the combination is dropped


def anderson(iterate: Iteration, v: Interface, monitor: Monitor) -> tuple[Interface, list[str]]:
    """Drive ``v <- M v`` by Anderson acceleration of depth 5; ``v`` is overwritten.

    Returns the last ``M v``, whose update is measured, and its status.
    """
    images = v.flat.new_empty(_DEPTH + 1, len(v.flat))  # of the last iterates, the oldest replaced
    residuals = torch.empty_like(images)
    owned, count = v.ownership().flat, 0
    image = v.like_boundary()
    best, best_update = v.like(v.flat.clone()), np.inf
    while True:
        residual = iterate(v, image)
        if monitor.record(v, image, residual):
            return image, monitor.final_statuses
        update = monitor.history.update[-1]
        if update > _GROWTH * best_update:
            count = 0
            v.flat.copy_(best.flat)
            continue
        best.flat.copy_(image.flat)
        best_update = update
        images[count % len(images)] = image.flat
        torch.sub(image.flat, v.flat, out=residuals[count % len(images)])
        count += 1
        kept = min(count, len(images))
        gram = monitor.mean((residuals[:kept] * owned) @ residuals[:kept].T).reshape(kept, kept)
        torch.mv(images[:kept].T, torch.as_tensor(_weights(gram)).to(images), out=v.flat)


def _weights(gram: np.ndarray) -> np.ndarray:
    """Minimise ``w^T G w`` under ``sum(w) = 1``; nearly dependent residuals are damped."""
    scale = np.trace(gram)
    if not scale > 0:
        return np.full(len(gram), 1 / len(gram))
    damped = gram / scale + 1e-14 * np.eye(len(gram))
    weights = np.linalg.solve(damped, np.ones(len(gram)))
    return weights / weights.sum()
