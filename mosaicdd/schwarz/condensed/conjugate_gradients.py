"""Conjugate gradients on the interface operator of a medium without a velocity.

``S p`` follows ``p`` by recurrence (Chronopoulos, Gear, 1989), so that an iteration applies ``S`` once.

In media of high contrast values are large beside what they leave of the equation: rounding, step after
step, makes the recurrence of the residual drift. So steps are added up apart from the values, and the
residual is computed anew when it comes near to rounding, but is large beside its drift yet (van der Vorst,
Ye, 2000). What is left then is the rounding of the result.
"""

from typing import Any

import numpy as np
import torch

from mosaicdd.schwarz.condensed.interface_krylov import InterfaceKrylov
from mosaicdd.schwarz.error_estimate import least_ritz_value

# Of bounds, as Ritz values approach the smallest eigenvalue from above: estimates are 1.16 to 3.9 times the error in
# 200 random media (`scripts/bench_field_estimate.py`).
_SAFETY = 1.5
# Times the rounding: a residual that is computed anew. Inclusions of 1e6 at 2048 x 2048 (`scripts/bench_fields.py`)
# take 17 iterations so, 20 where it drifts on.
_NEAR = 1e4
_MATTERS = 2.0  # rounding beside what is asked for, for that to pay: its bound is generous


class ConjugateGradients(InterfaceKrylov):
    """Minimise the energy of the error.

    Attributes
    ----------
    least
        The smallest Ritz value of the preconditioned operator that each problem has seen.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.least = np.ones(len(self.statuses))
        self._work = [self._spare, self._vectors.new(), self._vectors.new()]

    def _errors_of(
        self, r: torch.Tensor, lost: torch.Tensor | None
    ) -> tuple[torch.Tensor, np.ndarray]:
        """Bound the errors by one more correction ``z`` of the residual and what rounding hides of it.

        Both are one residual, as the signs of the second are at random.

        With ``e`` the error and ``M`` the preconditioner, whose smallest eigenvalue with ``S`` is
        ``theta``, ``z = M r = M S e``, so ``e S e <= (r, z) / theta``; ``e`` itself is ``z / theta`` at
        most where it has the shape of slow errors. Where rounding has made ``S`` indefinite nothing is known.
        """
        if lost is not None:
            r += lost
        z = self.correction(r)
        (products,) = self._inner((r, z))
        known = self.least > 0
        least = np.where(known, self.least, np.finfo(float).tiny)
        bounds = np.sqrt(_SAFETY * np.maximum(products, 0.0)) / np.sqrt(least)
        energies = np.where(known, bounds, np.inf)
        return z.abs_().div_(torch.from_numpy(least).to(z)[:, None]), energies

    def _iterate(self, x: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> None:
        n = len(x)
        p, swept, more = (vectors.zero_() for vectors in self._work)  # the result is x + more
        before, alpha = np.ones(n), np.zeros(n)
        steps: list[list[tuple[float, float]]] = [[] for _ in range(n)]  # alpha, beta
        near, ended = self._near_rounding(x, r), False
        while not ended:
            running = self._running
            z, swept_z = self.correct(r)
            gamma, delta = self._inner((r, z), (z, swept_z))
            begins = alpha == 0
            beta = np.where(begins, 0.0, gamma / np.where(before == 0, 1.0, before))
            energy = delta - beta * gamma / np.where(begins, 1.0, alpha)  # p S p
            alpha = np.where(running, gamma / np.where(energy == 0, 1.0, energy), 0.0)
            before = gamma
            back, far = (torch.from_numpy(factors).to(x)[:, None] for factors in (beta, alpha))
            products = x.new_zeros(2, n)
            for number, part in enumerate(self._inner.parts):
                along, image = p[:, part], swept[:, part]
                torch.addcmul(z[:, part], along, back, out=along)
                torch.addcmul(swept_z[:, part], image, back, out=image)
                more[:, part].addcmul_(along, far)
                r[:, part].addcmul_(image, far, value=-1.0)
                products += self._inner.of_part(number, (p, p), (r, r))
            if self._system.counts is not None:
                products[1:] = self._inner.here(self._counted(r))
            for i in np.flatnonzero(running).tolist():
                steps[i].append((float(alpha[i]), float(beta[i])))
            ended = self._judge(x, products, alpha, more)
            due = self.residuals <= near
            if ended or due.any():
                x += more
                more.zero_()
                near[due], self._renewed[due] = 0.0, True
                if ended:
                    ended = self._settled(x, b, r)
                else:
                    self._residual(b, x, out=r)
        for i, taken in enumerate(steps):
            if taken:
                self.least[i] = min(self.least[i], least_ritz_value(taken))

    def _near_rounding(self, x: torch.Tensor, r: torch.Tensor) -> np.ndarray:
        """Return from what relative residual on each problem's is to be computed anew; zero for never."""
        rounding = self._rounding(x)
        products = torch.cat(
            [self._inner.here(self._counted(r), self._counted(rounding)), self._inner.squares(x)]
        )
        (*squares, values), _ = self._inner.over_ranks(products)
        left, lost = np.sqrt(squares) / self._norms
        self.sizes = np.sqrt(values / self._unknowns)  # while steps are apart from the values
        pays = (lost >= _MATTERS * self._rule.rtol) & (left > _NEAR * lost)
        return np.where(pays, _NEAR * lost, 0.0)
