"""The equations' left side in float32, for directions of conjugate gradients: in differences, stretch by stretch."""

import torch

from mosaicdd.schwarz.multigrid.level_operator import LevelOperator


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
        longest = max(s.stop - s.start for s in self.stretches)
        self._room = p.new_empty(longest)
        self._rows = [self._of_stretch(s) for s in self.stretches]

    def _of_stretch(self, stretch: slice) -> list[tuple[torch.Tensor, ...]]:
        """Return views for the sums of a stretch: ``(q, p, room, k, beside, k, beside, ..)`` of each class."""
        level, rows = self._level, []
        for number, of in enumerate(level.nodes.classes):
            room = self._room[: stretch.stop - stretch.start]
            row = [self._q[number, stretch], self._p[number, stretch], room]
            for step in level.steps:
                row += [level.coupling(of, step, stretch), level.beside(self._p, of, step, stretch)]
            rows.append(tuple(row))
        return rows

    def of_stretch(self, number: int) -> float:
        """Compute it in a stretch; return what that makes of ``p q``."""
        energy = 0.0
        for q, p, difference, k, beside, *pairs in self._rows[number]:
            torch.sub(p, beside, out=difference)
            torch.mul(k, difference, out=q)
            for k, beside in zip(pairs[::2], pairs[1::2], strict=True):
                torch.sub(p, beside, out=difference)
                q.addcmul_(k, difference)
            energy += float(torch.dot(p, q))
        return energy
