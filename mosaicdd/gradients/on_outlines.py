"""What the outline of a shape adds to the Lagrangian: given values, fluxes and exchange; see `cut`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch

from mosaicdd.gradients.parameters import Parameters
from mosaicdd.lattice.axes import at
from mosaicdd.problems.discretisation.crossings import LEAST_DAMPING, Crossings, OnOutlines
from mosaicdd.problems.discretisation.cut_outline import CutOutline
from mosaicdd.problems.fields.fields import Part

Tied = tuple[int, torch.Tensor, torch.Tensor, tuple[torch.Tensor, ...]]
"""Along which axis, flat edges, whether they lead up, and nodes, by how much their edges' conductances grow, .."""


class Flow(Protocol):
    """What flows by an equation that is not linear, where faces and what multiplies flows are 1."""

    def to_values(
        self, nodes: torch.Tensor, axis: int, ups: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """Return it from flat nodes to values beside them along an axis, ``(T,)``; ``ups``: where they are at larger coordinates."""

    def diffusion(self, nodes: torch.Tensor, ties: Sequence[Tied]) -> torch.Tensor:
        """Return how much flows for each difference of values at flat nodes, in the mean of the faces, ``(T,)``."""


class ActingOutlines:
    """Where the outline of a shape acts on the nodes of a part.

    Parameters
    ----------
    on
        Of conductances that are the faces alone.
    faces
        Of the edges along each axis.
    wide, mine
        The nodes of the part, and which of them a process speaks for: what is given counts there.

    Attributes
    ----------
    connected
        Which nodes something flows to.
    """

    def __init__(
        self,
        parameters: Parameters,
        outline: CutOutline,
        on: OnOutlines,
        faces: Sequence[np.ndarray],
        wide: Part,
        mine: np.ndarray,
    ):
        self._wide = wide
        self._parameters, self._outline = parameters, outline
        self._h, self._mine = parameters.grid.spacing, mine.reshape(-1)
        parts = [parameters.problem.conditions.outline(name) for name in outline.names]
        self._names = ["outline" if part is None else str(part) for part in parts]
        self._ties = [
            (axis, edges, torch.from_numpy(ups), self._acting(tied))
            for axis, edges, ups, tied in self._tied(on.ties, faces, mine.shape)
        ]
        natural = on.natural
        self._exchanges = bool(natural.alphas.any()) or any(
            name + ".alpha" in parameters.names for name in self._names
        )
        self._alphas = torch.from_numpy(natural.alphas)
        self._flows = self._acting(natural.crossings(np.ones(len(natural.nodes))))
        self._distances = torch.from_numpy(natural.distances)
        self._on = self._acting(on.on)
        own = self._mine[on.on.nodes]
        self._held = self._acting(on.on.chosen(own, on.on.nodes[own]))
        total = np.zeros(mine.shape)
        for axis, of_edges in enumerate(faces):
            for end in range(2):
                total += np.pad(of_edges, _beside(axis, end, mine.ndim))
        tied = np.zeros(mine.size, bool)
        tied[on.ties.nodes] = True
        self.connected = (total > 0) | tied.reshape(mine.shape)
        self._faces = torch.from_numpy(np.where(total > 0, total, 1.0))
        self._none = torch.from_numpy(total <= 0)

    def _tied(
        self, ties: Crossings, faces: Sequence[np.ndarray], shape: tuple[int, ...]
    ) -> list[tuple[int, torch.Tensor, np.ndarray, Crossings]]:
        """Return along each axis the flat edges of ties, whether they lead up, and these, by how much their edges' conductances grow."""
        every = []
        places = np.stack(np.unravel_index(ties.nodes, shape), axis=1)
        away = ties.points - places - [p.start for p in self._wide]
        along = np.abs(away).argmax(axis=1) if len(away) else np.empty(0, int)
        for axis, of_edges in enumerate(faces):
            which = np.flatnonzero(along == axis)
            low = places[which]
            low[:, axis] -= away[which, axis] < 0
            edges = np.ravel_multi_index(tuple(low.T), of_edges.shape)
            tied = ties.chosen(which, ties.nodes[which])
            growth = tied.weights / of_edges.reshape(-1)[edges]
            tied = Crossings(tied.nodes, tied.points, growth, tied.outlines)
            every.append((axis, torch.from_numpy(edges), away[which, axis] > 0, tied))
        return every

    def _acting(self, crossings: Crossings) -> tuple[torch.Tensor, ...]:
        """Return nodes, weights, numbers of outlines, what they were given, and whether they are this process's."""
        where = self._parameters.problem.conditions, self._outline.names, self._parameters.grid
        values = crossings.values(*where)[0]
        mine = self._mine[crossings.nodes]
        arrays = crossings.nodes, crossings.weights, crossings.outlines, values.copy(), mine
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
        between: Sequence[tuple[torch.Tensor, torch.Tensor | None]],
        u: torch.Tensor,
        v: torch.Tensor,
        w: torch.Tensor,
        rises: Mapping[str, torch.Tensor],
        flow: Flow | None = None,
    ) -> torch.Tensor:
        """Return what outlines add; ``between``: what flows along edges, see `Edges`, else as `Lagrangian`.

        ``flow``: of equations that are not linear.
        """
        which = named, before, rises
        u, v, w = u.reshape(-1), v.reshape(-1), w.reshape(-1)
        total = self.given_to(w, *which)
        for axis, edges, ups, acting in self._ties:
            nodes, growth = acting[:2]
            mean, more = between[axis]
            k = growth * mean.reshape(-1)[edges]
            if more is not None:
                k = k + growth * torch.where(ups, -1.0, 1.0) * more.reshape(-1)[edges]
            values = self._given(acting, *which)
            falls = u[nodes] - values
            if flow is not None:
                falls = flow.to_values(nodes, axis, ups, values)
            total = total - (k * falls * v[nodes]).sum()
        if flow is not None:
            return total + self.inflow(*which, u, v, lambda at: flow.diffusion(at, self._ties))
        along = [mean for mean, _ in between]
        return total + self.inflow(*which, u, v, lambda at: self._diffusion(along).reshape(-1)[at])

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
        diffusion: Callable[[torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        """Return what flows in through natural outlines, tested, of flat values; ``diffusion``: at flat nodes."""
        nodes, lengths, outlines, _, mine = self._flows
        flux = self._given(self._flows, named, before, rises)
        if self._exchanges:
            alphas = self._alphas
            for number, name in enumerate(self._names):
                alpha = name + ".alpha"
                if alpha in named:
                    own = torch.where(mine, named[alpha], before[alpha])
                    alphas = torch.where(outlines == number, own, alphas)
            flux = flux - alphas * u[nodes]
            if self._distances.any():
                damping = 1 + self._h * alphas * self._distances / diffusion(nodes)
                flux = flux / damping.clamp(min=LEAST_DAMPING)
        return (self._h * lengths * flux * v[nodes]).sum()

    def _diffusion(self, along: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return it at the nodes: their conductances over their faces, 1 where there are none."""
        total = torch.zeros(self._faces.shape, dtype=torch.float64)
        aspect = self._parameters.grid.aspect or (1.0,) * len(along)
        for axis, k in enumerate(aspect[axis] ** 2 * k for axis, k in enumerate(along)):
            for end in range(2):
                before, after = _beside(axis, end, k.ndim)[axis]
                padding = at(axis, k.ndim, (before, after), (0, 0))
                flat = [count for pair in reversed(padding) for count in pair]
                total = total + torch.nn.functional.pad(k, flat)
        return torch.where(self._none, 1.0, total) / self._faces


def _beside(axis: int, end: int, axes: int) -> list[tuple[int, int]]:
    """Return by how much edges along an axis are padded to stand at the nodes of their low (0) or high ends."""
    return list(at(axis, axes, (end, 1 - end), (0, 0)))
