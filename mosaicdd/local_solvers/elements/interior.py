"""The nodes inside the elements of a rectangle of lattice cells, which share the nodes between them."""

import torch

from mosaicdd.local_solvers.elements.inner_nodes import InnerNodes, Roots, ties_of
from mosaicdd.local_solvers.elements.planes import Planes
from mosaicdd.problems.operators.conductances import Conductances


class Interior:
    """The nodes inside the elements of a piece.

    Parameters
    ----------
    conductances
        Between the nodes of the piece.
    spacing
        ``s``, cells along the side of an element.
    side
        ``q``, cells along the smallest squares.
    """

    def __init__(self, conductances: Conductances, spacing: int, side: int, roots: Roots):
        self._spacing, self._side = spacing, side
        self._nodes = InnerNodes.of(conductances, side, roots)
        self._edges = {
            step: torch.from_numpy(values).to(roots.leaves)
            for step, (values, _) in ties_of(conductances).items()
        }

    def driven(self, f: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        """Return ``f + K u`` at the nodes inside, by values ``u`` on perimeters; ``f`` is overwritten."""
        return self._drive(f, u, inwards=True)

    def driving(self, u: torch.Tensor) -> torch.Tensor:
        """Return ``K u`` on perimeters, by values ``u`` inside; elsewhere it is anything."""
        return self._drive(torch.zeros_like(u), u, inwards=False)

    def _drive(self, total: torch.Tensor, u: torch.Tensor, *, inwards: bool) -> torch.Tensor:
        """Add what passes between perimeters and the nodes beside them, along the edges of each step."""
        s = self._spacing
        # On perimeters, beside them, and the edges between: upwards, and downwards.
        up = slice(0, -1, s), slice(1, None, s), slice(0, None, s)
        down = slice(s, None, s), slice(s - 1, -1, s), slice(s - 1, None, s)
        for step, conductances in self._edges.items():
            chosen: list[tuple[slice, slice, slice]] = []  # per axis: nodes, neighbours, edges
            for at in step:
                if at == 0:
                    chosen.append((slice(None), slice(None), slice(None)))
                elif 0 in step:
                    on, beside, edges = up if (at < 0) == inwards else down
                    chosen.append((beside, on, edges) if inwards else (on, beside, edges))
                else:
                    low, high = slice(0, -1), slice(1, None)
                    chosen.append((*((low, high) if at > 0 else (high, low)), slice(None)))
            nodes, neighbours, between = zip(*chosen, strict=True)
            total[:, *nodes].addcmul_(conductances[*between], u[:, *neighbours])
        return total

    def solve(
        self, f: torch.Tensor, *, everywhere: bool = True, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return ``u`` inside the elements for sources, with zero on their perimeters.

        Parameters
        ----------
        everywhere
            Not only at the nodes beside perimeters.
        out
            Where to write it; the last nodes are left as they are.
        """
        u = self._nodes.solve(Planes.of(f, self._side, self._nodes.shape), everywhere=everywhere)
        whole = torch.zeros_like(f) if out is None else out
        u.put(whole)
        return whole
