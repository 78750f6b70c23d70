"""Generalised conjugate residuals on the interface operator of a medium with a velocity.

The iterates are those of GMRES with the preconditioner on the right (Eisenstat, Elman, Schultz, 1983):
each has the smallest residual that the directions so far allow. These are kept, with their images under
``S``, which are made orthonormal, so an iteration applies ``S`` once.
"""

from typing import Any

import numpy as np
import torch

from mosaicdd.schwarz.condensed.interface_krylov import InterfaceKrylov

# Of estimates: 1.35 to 29 times the error in 50 random flows (`scripts/bench_field_estimate.py`).
_SAFETY = 1.5
_SLOWEST = 0.9  # share of the residual that two steps leave, at most, for an estimate by a geometric series
# Directions; then the iteration begins again. They cost two vectors each, and flows take 12 to 20 iterations.
_KEPT = 30


class ConjugateResiduals(InterfaceKrylov):
    """Minimise the residual."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._count, vectors = 0, self._vectors
        shape = vectors.problems, _KEPT, vectors.size
        self._directions, self._images = (torch.empty(shape, **vectors.tensors) for _ in range(2))

    def _errors_of(self, r: torch.Tensor, lost: torch.Tensor | None) -> tuple[torch.Tensor, None]:
        """Estimate the errors by what two more iterations change, for the residual and what rounding hides of it.

        It is an estimate, no bound: without symmetry there is none that would not cost as much as the solve.
        So both are taken apart, and their sizes added up: steps of both together may miss the smaller.
        """
        hidden = None if lost is None else self._spare.copy_(lost)  # which steps would write to
        sizes = self._changes(r)
        if hidden is not None:
            sizes += self._changes(hidden)
        return sizes, None

    def _changes(self, r: torch.Tensor) -> torch.Tensor:
        """Return how much two more iterations change, made up for what they leave of the residual."""
        (before,) = self._inner(self._counted(r))
        left, z = r.clone(), torch.zeros_like(r)
        for _ in range(2):
            p, alpha = self._step(left)
            z.addcmul_(p, torch.from_numpy(alpha).to(z)[:, None])
        (after,) = self._inner(self._counted(left))
        share = np.sqrt(after / np.where(before > 0, before, 1.0))
        factors = _SAFETY / (1 - np.minimum(share, _SLOWEST))
        return z.abs_().mul_(torch.from_numpy(factors).to(z)[:, None])

    def _lost(self, x: torch.Tensor) -> torch.Tensor:
        """Return as much as rounding may be, at random: of what leaks two steps see too little."""
        return self._rounding(x).mul_(self._system.signs)

    def _iterate(self, x: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> None:
        self._count, ended = 0, False
        while not ended:
            p, alpha = self._step(r)
            alpha = np.where(self._running, alpha, 0.0)
            x.addcmul_(p, torch.from_numpy(alpha).to(x)[:, None])
            products = torch.cat(
                [self._inner.here((p, p), self._counted(r)), self._inner.squares(x)]
            )
            ended = self._judge(x, products, alpha) and self._settled(x, b, r)

    def _step(self, r: torch.Tensor) -> tuple[torch.Tensor, np.ndarray]:
        """Take the best step from ``r`` along a new direction; return that, and how far, ``(n,)``."""
        k = self._count % _KEPT
        self._count += 1
        self._directions[:, k], self._images[:, k] = self.correct(r)
        alpha = self._orthonormalise(k, r)
        r.addcmul_(self._images[:, k], torch.from_numpy(alpha).to(r)[:, None], value=-1.0)
        return self._directions[:, k], alpha

    def _orthonormalise(self, k: int, r: torch.Tensor) -> np.ndarray:
        """Make image ``k`` orthonormal to those before; return its products with ``r``, ``(n,)``.

        All as residuals count.
        Classical Gram-Schmidt, twice: once loses orthogonality with the square of the residual's
        reduction. One reduction over the ranks per pass; after the second, the norm follows without
        cancellation.
        """
        before, image = self._images[:, :k], self._images[:, k]
        total = np.zeros((k, len(r)))
        for _ in range(2):
            _, counted = self._counted(image)
            pairs = [(before[:, j], counted) for j in range(k)]
            *products, squares, product = self._inner(*pairs, (image, counted), (r, counted))
            coefficients = np.reshape(products, (k, len(r)))
            factors = torch.from_numpy(coefficients.T.copy()).to(r)[:, None]
            image -= (factors @ before)[:, 0]
            total += coefficients
        norms = np.sqrt(np.maximum(squares - np.square(coefficients).sum(0), 0.0))
        norms = np.where(norms > 0, norms, 1.0)
        factors = torch.from_numpy(total.T.copy()).to(r)[:, None]
        direction = self._directions[:, k]
        direction -= (factors @ self._directions[:, :k])[:, 0]
        for vectors in (direction, image):
            vectors /= torch.from_numpy(norms).to(r)[:, None]
        return product / norms
