"""What the outline of a shape adds to the Lagrangian: given values, fluxes and exchange; see `cut`."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from mosaicdd.discretisation.crossings import BoundaryIntersections, BoundaryTerms
from mosaicdd.discretisation.cut import CutCells, tie_conductances
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.problems.operators.conductances import Conductances

Falls = Callable[[torch.Tensor], torch.Tensor]
"""Returns what flows along cut edges to values at their ends, ``(T,)``, where conductances are 1."""


class ActingOutlines:
    """Where the outline of a shape acts on the nodes of a part.

    Parameters
    ----------
    cut
        The outline there.
    active
        Which nodes may have an unknown.
    on
        Of conductances that are the faces alone.
    mine
        Which nodes a process speaks for: what is given counts there.

    Attributes
    ----------
    connected
        Which nodes something flows to.
    ties
        The edges from active nodes that end at given values.
    natural
        The pieces of natural outlines.
    """

    def __init__(
        self,
        parameters: Parameters,
        cut: CutCells,
        active: np.ndarray,
        on: BoundaryTerms,
        mine: np.ndarray,
    ):
        self._parameters, self._cut, self.natural = parameters, cut, on.natural
        self._h, self._mine = parameters.grid.spacing, mine.reshape(-1)
        outline = parameters.outline
        self._outlines = () if outline is None else outline.names
        parts = [parameters.problem.conditions.outline(name) for name in self._outlines]
        self._names = ["outline" if part is None else part.as_given for part in parts]
        self.ties = cut.cut_edges(active)
        self._tied = self._acting(on.ties)
        self._exchanges = bool(on.natural.alphas.any()) or any(
            name + ".alpha" in parameters.names for name in self._names
        )
        self._alphas = torch.from_numpy(on.natural.alphas)
        self._flows = self._acting(on.natural.crossings(np.ones(len(on.natural.nodes))))
        self._on = self._acting(on.on)
        own = self._mine[on.on.nodes]
        self._held = self._acting(on.on.chosen(own, on.on.nodes[own]))
        faces = Conductances(cut.cover.edge_faces, np.zeros(mine.shape))
        self.connected = faces.diagonal() > 0
        self.connected.reshape(-1)[on.ties.nodes] = True

    def _acting(self, crossings: BoundaryIntersections) -> tuple[torch.Tensor, ...]:
        """Return nodes, numbers of outlines, what they were given, and whether they are this process's."""
        where = self._parameters.problem.conditions, self._outlines, self._parameters.grid
        values = crossings.values(*where)[0]
        mine = self._mine[crossings.nodes]
        arrays = crossings.nodes, crossings.outlines, values.copy(), mine
        return tuple(map(torch.from_numpy, arrays))

    def _given(
        self,
        acting: Sequence[torch.Tensor],
        named: Mapping[str, torch.Tensor],
        before: Mapping[str, torch.Tensor],
        rises: Mapping[str, torch.Tensor],
    ) -> torch.Tensor:
        """Return what is given at crossings."""
        *_, outlines, values, mine = acting
        for number, name in enumerate(self._names):
            here = outlines == number
            if name in named:
                values = torch.where(here, torch.where(mine, named[name], before[name]), values)
            if name in rises:
                values = values + torch.where(here & mine, rises[name], 0.0)
        return values

    def __call__(
        self,
        named: Mapping[str, torch.Tensor],
        before: Mapping[str, torch.Tensor],
        between: Conductances,
        u: torch.Tensor,
        v: torch.Tensor,
        w: torch.Tensor,
        rises: Mapping[str, torch.Tensor],
        falls: Falls | None = None,
        diffusion: Callable[[], torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Return what outlines add; ``between``: the conductances, else as `Lagrangian`.

        ``falls``, ``diffusion``: of equations that are not linear; the latter as `NaturalFacets.inflow` has it.
        """
        which = named, before, rises
        u, v, w = u.reshape(-1), v.reshape(-1), w.reshape(-1)
        nodes, values = self._tied[0], self._given(self._tied, *which)
        out = u[nodes] - values if falls is None else falls(values)
        total = (tie_conductances(self.ties, between, torch) * out * v[nodes]).sum()

        def linear() -> torch.Tensor:
            at_nodes: torch.Tensor = self._cut.diffusion(between, torch)
            return at_nodes.reshape(-1)[self._flows[0]]

        return self.given_to(w, *which) - total + self.inflow(*which, u, v, diffusion or linear)

    def given_to(self, w: torch.Tensor, *which: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return what is given at nodes on the outline, times flat values there."""
        return (w[self._held[0]] * self._given(self._held, *which)).sum()

    def imposed(self, u: torch.Tensor, *which: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return values with those that are given at nodes on the outline."""
        flat = u.reshape(-1).index_put((self._on[0],), self._given(self._on, *which))
        return flat.reshape(u.shape)

    def inflow(
        self,
        named: Mapping[str, torch.Tensor],
        before: Mapping[str, torch.Tensor],
        rises: Mapping[str, torch.Tensor],
        u: torch.Tensor,
        v: torch.Tensor,
        diffusion: Callable[[], torch.Tensor],
    ) -> torch.Tensor:
        """Return what flows in through natural outlines, tested, of flat values; ``diffusion``: as `NaturalFacets.inflow`."""
        nodes, outlines, _, mine = self._flows
        alphas = self._alphas
        for number, name in enumerate(self._names):
            alpha = name + ".alpha"
            if alpha in named:
                own = torch.where(mine, named[alpha], before[alpha])
                alphas = torch.where(outlines == number, own, alphas)
        flux = self._given(self._flows, named, before, rises)
        inflow = self.natural.inflow(flux, u[nodes], self._h, diffusion, alphas, torch)
        return (inflow * v[nodes]).sum()
