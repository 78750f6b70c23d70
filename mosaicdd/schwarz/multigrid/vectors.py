"""What conjugate gradients do with vectors beside a cycle: to add others with a factor, and inner products in float64.

By torch each of these reads its numbers anew, and some write results that only the next one needs, which takes as long as
the cycle itself. In compiled code each number passes once.
"""

from collections.abc import Callable

import torch

from mosaicdd.schwarz.multigrid.compiled import arrays_of, kernels

_ALL = slice(0, None)


def dot(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the inner product of two vectors, the second of longer numbers if they differ."""
    code, arrays = kernels(), arrays_of(a, b)
    if code is None or arrays is None:
        return float(torch.dot(a.reshape(-1).to(b.dtype), b.reshape(-1)))
    return code.dot(*(of.reshape(-1) for of in arrays))


def adding(x: torch.Tensor, a: torch.Tensor) -> Callable[..., None]:
    """Return what lets ``x = x + factor a``, ``(C, M)``, for a factor and a stretch of columns."""
    code, arrays = kernels(), arrays_of(x, a)

    def by_torch(factor: float, stretch: slice = _ALL) -> None:
        for of, more in zip(x[:, stretch], a[:, stretch], strict=True):
            of.add_(more.to(of.dtype), alpha=factor)

    if code is None or arrays is None:
        return by_torch
    return lambda factor, stretch=_ALL: code.add(*arrays, factor, *_ends(stretch, x))


def turning(p: torch.Tensor, z: torch.Tensor, r: torch.Tensor) -> Callable[..., float]:
    """Return what lets ``p = z + factor p``, ``(C, M)``, for a factor and a stretch of columns, and returns ``p r`` there."""
    code, arrays = kernels(), arrays_of(p, z, r)

    def by_torch(factor: float, stretch: slice = _ALL) -> float:
        for of, more in zip(p[:, stretch], z[:, stretch], strict=True):
            torch.add(more, of, alpha=factor, out=of)
        pairs = zip(p[:, stretch], r[:, stretch], strict=True)
        return sum(torch.stack([torch.dot(*pair) for pair in pairs]).tolist())

    if code is None or arrays is None:
        return by_torch
    return lambda factor, stretch=_ALL: code.turn(*arrays, factor, *_ends(stretch, p))


def stepping(r: torch.Tensor, q: torch.Tensor) -> Callable[[float], float]:
    """Return what lets ``r = r + factor q`` for a factor, and returns ``r r``."""
    r, q = r.view(-1), q.view(-1)
    code, arrays = kernels(), arrays_of(r, q)
    if code is not None and arrays is not None:
        return lambda factor: code.step(*arrays, factor)

    def by_torch(factor: float) -> float:
        r.add_(q, alpha=factor)
        return float(torch.dot(r, r))

    return by_torch


def _ends(stretch: slice, vector: torch.Tensor) -> tuple[int, int]:
    return stretch.start, vector.shape[1] if stretch.stop is None else stretch.stop
