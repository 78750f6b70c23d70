"""The residual of the grid's equations in a part of a field, in few passes over its values.

That is `Conductances.apply` less a source, for fields that are much larger than a cache: a product and its sum
are one pass here, and nothing is allocated by the way.
"""

import numpy as np
import torch

from mosaicdd.lattice.axes import at, ends
from mosaicdd.problems.operators.conductances import Conductances

_LOW, _HIGH, _INNER, _ALL = slice(-1), slice(1, None), slice(1, -1), slice(None)
# Of differences along the diagonals of a plane that rise and fall: from which nodes, and to which; then those
# from the node before one inside, and those to the node after.
_ACROSS = (
    ((_LOW, _LOW), (_HIGH, _HIGH), (_LOW, _LOW), (_HIGH, _HIGH)),
    ((_HIGH, _LOW), (_LOW, _HIGH), (_HIGH, _LOW), (_LOW, _HIGH)),
)


class Stencil:
    """The equations of the nodes inside a part of the grid.

    Parameters
    ----------
    conductances
        Between the nodes of the part, ``(rows, columns)``.
    """

    def __init__(self, conductances: Conductances):
        c = conductances
        flows = [
            (against[inner], along[inner])
            for axis, (along, against) in enumerate(zip(c.along, c.against, strict=True))
            for inner in [at(axis, c.axes, _ALL, _INNER)]
        ]
        if c.across is not None:
            flows += [(k, k) for k in c.across]
        along = [(*ends(axis, c.axes, _INNER), *ends(axis, c.axes)) for axis in range(c.axes)]
        self._terms = []
        for (first, last, before, after), (back, forth) in zip(
            (*along, *_ACROSS), flows, strict=False
        ):
            rise = torch.empty(forth.shape, dtype=torch.float64)
            to, away = _tensor(back[before]), _tensor(forth[after])
            self._terms.append((first, last, rise, (rise[before], to), (rise[after], away)))
        self._inside = (_INNER,) * c.axes
        reaction = c.reaction[self._inside]
        self._reaction = _tensor(reaction) if reaction.any() else None
        self._total = torch.empty(reaction.shape, dtype=torch.float64)

    def residual(
        self, u: torch.Tensor, source: torch.Tensor | None = None, scale: float = 1.0
    ) -> torch.Tensor:
        """Return ``h^2 A u`` less a scaled source at the nodes inside: room that the next is written to.

        Parameters
        ----------
        u
            ``(rows, columns)``.
        source
            At the nodes inside; None for zero.
        """
        total = self._total
        if source is None:
            total.zero_()
        else:
            torch.mul(source, -scale, out=total)
        for first, last, rise, before, after in self._terms:
            torch.sub(u[last], u[first], out=rise)
            total.addcmul_(*before)
            total.addcmul_(*after, value=-1.0)
        if self._reaction is not None:
            total.addcmul_(u[self._inside], self._reaction)
        return total


def _tensor(values: np.ndarray) -> torch.Tensor:
    """Return an array as a tensor; a copy of what may not be written to, for which torch would warn."""
    return torch.from_numpy(values if values.flags.writeable else values.copy())
