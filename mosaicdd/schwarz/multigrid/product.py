"""The equations' left side in float32, for directions of conjugate gradients: in differences, stretch by stretch."""

from collections.abc import Callable

import torch

from mosaicdd.schwarz.multigrid.combinations import Combination, combining
from mosaicdd.schwarz.multigrid.level_operator import LevelOperator
from mosaicdd.schwarz.multigrid.sums import Sum, planned


class Product:
    """Computes ``q = A p`` of two vectors but for the excess; planned once.

    Attributes
    ----------
    stretches
        Of slots.
    """

    def __init__(self, level: LevelOperator, p: torch.Tensor, q: torch.Tensor):
        self._level, self._p, self._q = level, p, q
        self.stretches = level.nodes.stretches()
        self._sums = [self._of_stretch(s) for s in self.stretches]
        self._energies = [
            combining([Combination(a, by=b) for a, b in zip(p[:, s], q[:, s], strict=True)])
            for s in self.stretches
        ]

    def _of_stretch(self, stretch: slice) -> Callable[[], None]:
        """Return the sums of a stretch."""
        level = self._level
        return planned(
            [
                Sum(
                    self._q[number, stretch],
                    None,
                    [
                        (level.coupling(of, q, stretch), level.beside(self._p, of, q, stretch))
                        for q in level.steps
                    ],
                    own=self._p[number, stretch],
                )
                for number, of in enumerate(level.nodes.classes)
            ]
        )

    def of_stretch(self, number: int) -> float:
        """Compute it in a stretch; return what that makes of ``p q``."""
        self._sums[number]()
        return self._energies[number](0.0)
