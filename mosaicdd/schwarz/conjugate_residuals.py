"""Generalised conjugate residuals on the interface operator of a medium with a velocity.

The iterates are those of GMRES with the preconditioner on the right (Eisenstat, Elman, Schultz, 1983):
each has the smallest residual that the directions so far allow. These are kept, with their images under
``S``, which are made orthonormal, so an iteration applies ``S`` once.
"""

from typing import Any

import numpy as np
import torch

from mosaicdd.schwarz.interface_krylov import InterfaceKrylov

_SLOWEST = 0.9  # of the series of an estimate
_KEPT = 30  # directions; then the iteration begins again


class ConjugateResiduals(InterfaceKrylov):
    """Minimise the residual."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        n = self._shapes.problems
        shape = n, _KEPT, self._shapes.flat.numel() // n
        self._directions, self._images = (self._shapes.flat.new_empty(shape) for _ in range(2))

    def errors(self, r: torch.Tensor) -> tuple[torch.Tensor, np.ndarray, None]:
        """Estimate the errors by two more corrections; see `InterfaceKrylov.errors`.

        They are the first terms of a series for the error; the others are taken to fall as these two
        do. That is an estimate, no bound: without symmetry there is none.
        """
        z, swept = self.correct(r)
        more, _ = self.correct(r - swept)
        first, second = self.sums((z, z), (more, more))
        rate = np.sqrt(second / np.where(first > 0, first, 1.0))
        z += more
        return z, 1 / (1 - np.minimum(rate, _SLOWEST)), None

    def _iterate(self, x: torch.Tensor, r: torch.Tensor) -> None:
        ended, k = False, 0
        while not ended:
            self._directions[:, k], self._images[:, k] = self.correct(r)
            p, image = self._directions[:, k], self._images[:, k]
            alpha = np.where(self._running, self._orthonormalise(k, r), 0.0)
            factors = torch.from_numpy(alpha).to(x)[:, None]
            x.addcmul_(p, factors)
            r.addcmul_(image, factors, value=-1.0)
            ended = self._judge(x, r, p, alpha)
            k = (k + 1) % _KEPT

    def _orthonormalise(self, k: int, r: torch.Tensor) -> np.ndarray:
        """Make image ``k`` orthonormal to those before; return its products with ``r``, ``(n,)``.

        Classical Gram-Schmidt, twice: once loses orthogonality with the square of the residual's
        reduction. One reduction over the ranks per pass; after the second, the norm follows without
        cancellation.
        """
        before, image = self._images[:, :k], self._images[:, k]
        total = np.zeros((k, len(r)))
        for _ in range(2):
            pairs = [(before[:, j], image) for j in range(k)]
            *products, squares, product = self.sums(*pairs, (image, image), (r, image))
            coefficients = np.reshape(products, (k, len(r)))
            factors = torch.from_numpy(coefficients.T.copy()).to(r)[:, None]
            image -= (factors @ before)[:, 0]
            total += coefficients
        norms = np.sqrt(np.maximum(squares - np.square(coefficients).sum(0), 0.0))
        norms = np.where(norms > 0, norms, 1.0)
        factors = torch.from_numpy(total.T.copy()).to(r)[:, None]
        direction = self._directions[:, k]
        direction -= (factors @ self._directions[:, :k])[:, 0]
        for one in (direction, image):
            one /= torch.from_numpy(norms).to(r)[:, None]
        return product / norms
