"""Hats and modes on lattice edges, by one-dimensional problems along the lattice lines.

Every end of an edge has a hat: it solves the one-dimensional equation with the conductances of that line.
A mode is one of the lowest eigenvectors of the one-dimensional stiffness along an edge, ends fixed,
against the diagonal of the grid operator. All edges are done at once, as vectors over them.
"""

from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.local_solvers.elements.kinds import alike

_SMALL = 0.03  # eigenvalue below which a mode is worth an unknown (uniform: 0.0096, 0.038, ..)
_SMALL_IN_FLOW = 0.1  # the same with a velocity, which is on the diagonal, too
_INVERSE_ITERATIONS = 3  # modes need no digits: the coarse space is what they span, nearly
_EQUAL = 1e-9  # relative difference of what is the same
_LOST = 1e-24  # of the square of a mode, below which it is rounding
_TINY = 1e-12  # pivot of a singular problem, by the diagonal
_ISOLATED = 1e3  # eigenvalue, at least, of nodes without an unknown: no mode


@dataclass(frozen=True)
class CutLines:
    """What an outline makes of the lattice edges on the lines of one axis.

    Parameters
    ----------
    active
        Whether there is an unknown at the nodes between lattice nodes, ``(lines, cells, s - 1)``.
    edges
        Whether the outline cuts an edge, ``(lines, cells)``.
    more
        ``(lines, cells, s - 1)``: what stands on the diagonal of the one-dimensional equation besides
        the conductances along the line, on edges that are cut: ties to given values; where there is
        no unknown, a large number.
    """

    active: torch.Tensor
    edges: torch.Tensor
    more: torch.Tensor


def cut_lines(conductances: torch.Tensor, reaction: torch.Tensor, active: torch.Tensor) -> CutLines:
    """Return what the outline makes of lines by the reaction and the activity of their nodes."""
    edges = ~(active.all(-1) & (conductances.amin(-1) > 0))
    more = torch.where(active, reaction, _ISOLATED) * edges[..., None]
    return CutLines(active, edges, more)


def distinct_edges(
    conductances: torch.Tensor, diagonal: torch.Tensor, cut: CutLines | None
) -> tuple[tuple[torch.Tensor, torch.Tensor, CutLines | None], np.ndarray]:
    """Return what edges that differ have, as if they were one line, and which an edge's is, ``(lines, cells)``."""
    arrays = [conductances, diagonal]
    if cut is not None:
        arrays += [cut.more, cut.active.to(cut.more)]
    keys = alike([array.cpu().numpy() for array in arrays], axes=2)
    _, first = np.unique(keys, return_index=True)
    at = torch.from_numpy(first).to(conductances.device)

    def distinct(values: torch.Tensor) -> torch.Tensor:
        return values.flatten(0, 1)[at][None]

    if cut is not None:
        cut = CutLines(distinct(cut.active), distinct(cut.edges), distinct(cut.more))
    edges = distinct(conductances), distinct(diagonal), cut
    return edges, keys.reshape(conductances.shape[:2])


def small_eigenvalues(
    conductances: torch.Tensor, diagonal: torch.Tensor, cut: CutLines | None, *, flow: bool
) -> torch.Tensor:
    """Count the modes that are worth an unknown, ``(lines, cells)``.

    One at least; but none along an edge where all conductances are the same: there one would spare an
    iteration in ten, and take two unknowns of three.

    Parameters
    ----------
    flow
        Whether there is a velocity.
    """
    bound = _SMALL_IN_FLOW if flow else _SMALL
    k, d = (values.flatten(0, 1).t() for values in (conductances, diagonal))
    more = torch.zeros_like(d) if cut is None else cut.more.flatten(0, 1).t()
    counts = torch.zeros(k.shape[1], dtype=torch.long, device=k.device)
    uniform = (k == k[0]).all(0) & ((d - 4 * k[0]).abs() <= _EQUAL * d).all(0)
    varied = torch.nonzero(~uniform)[:, 0]
    if len(d):
        below = _eigenvalues_below(bound, k[:, varied], d[:, varied], more[:, varied])
        counts[varied] = below.clamp(min=1)
    counts = counts.unflatten(0, conductances.shape[:2])
    return counts if cut is None else counts.minimum(cut.active.sum(-1))


def tried_modes(counts: torch.Tensor, cut: CutLines | None, most: int) -> torch.Tensor:
    """Return how many modes edges are tried with that have any, ``(lines, cells)``."""
    tried = torch.where(counts > 0, most, 0)
    return tried if cut is None else tried.minimum(cut.active.sum(-1))


def edge_basis(
    conductances: torch.Tensor, modes: torch.Tensor, cut: CutLines | None
) -> torch.Tensor:
    """Return both hats and the modes at the nodes of lattice edges."""
    resistance = conductances.reciprocal()
    high = (resistance.cumsum(-1) / resistance.sum(-1, keepdim=True))[..., :-1]
    hats = torch.stack([1.0 - high, high], dim=-1)
    if cut is not None:
        hats[cut.edges] = 0.0
        crossed = cut.edges & cut.active.any(-1)
        hats[crossed] = _cut_hats(conductances[crossed], cut.more[crossed])
    return torch.cat([hats, modes], dim=-1)


def _cut_hats(conductances: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
    """Return both hats on lattice edges that the outline cuts, ``(edges, s - 1, 2)``."""
    k, more = conductances.t().contiguous(), more.t()
    count = len(more)
    # What lies between two cuts hangs on neither end, a single node on nothing: it must not be singular.
    diagonal = (k[:-1] + k[1:] + more) * (1 + 1e-10)
    diagonal = torch.where(diagonal > 0, diagonal, 1.0)
    hats = k.new_zeros(count, k.shape[1], 2)
    hats[0, :, 0], hats[-1, :, 1] = k[0], k[-1]
    pivots = [diagonal[0]]
    for j in range(1, count):
        factor = k[j] / pivots[-1]
        pivots.append(diagonal[j] - factor * k[j])
        hats[j] += factor[:, None] * hats[j - 1]
    hats[-1] /= pivots[-1][:, None]
    for j in reversed(range(count - 1)):
        hats[j] = (hats[j] + k[j + 1, :, None] * hats[j + 1]) / pivots[j][:, None]
    return hats.transpose(0, 1)


def edge_modes(
    conductances: torch.Tensor,
    diagonal: torch.Tensor,
    cut: CutLines | None,
    counts: torch.Tensor,
    most: int,
) -> torch.Tensor:
    """Return nearly the lowest modes of lattice edges, ``(lines, cells, s - 1, most)``, as far as they count."""
    modes = diagonal.new_zeros(*diagonal.shape, most)
    wanted = counts > 0
    more = torch.zeros_like(diagonal) if cut is None else cut.more
    k, d, more = (values[wanted].t().contiguous() for values in (conductances, diagonal, more))
    if k.numel() and most:
        there = torch.ones_like(d) if cut is None else cut.active[wanted].t().to(d)
        modes[wanted] = _lowest(k, d, more, there, most).permute(2, 1, 0)
    modes *= (torch.arange(most, device=modes.device) < counts[..., None])[..., None, :]
    return modes if cut is None else modes * cut.active[..., None]


def _eigenvalues_below(
    bound: float, k: torch.Tensor, d: torch.Tensor, more: torch.Tensor
) -> torch.Tensor:
    """Count the negative pivots of ``T + more - bound D`` for edges side by side (Sturm)."""
    count, pivot = torch.zeros(k.shape[1], dtype=torch.long, device=k.device), torch.ones_like(k[0])
    for j in range(len(d)):
        own = k[j] + k[j + 1] - bound * d[j] + more[j]
        pivot = own - (k[j].square() / pivot if j else 0.0)
        count += pivot < 0
    return count


def _lowest(
    k: torch.Tensor, d: torch.Tensor, more: torch.Tensor, there: torch.Tensor, most: int
) -> torch.Tensor:
    """Return nearly the lowest eigenvectors ``(most, s - 1, edges)``, of largest value 1.

    Inverse iterations with all of them side by side begin with polynomials at the nodes that are active,
    ``there``. The factors of ``T + more`` are made without a subtraction, so they are right to rounding whatever
    the contrast: instead of a pivot the conductance is carried on that all to the left of a node has in
    series. Nodes between two cuts may be tied to nothing: their part is singular, and constant in the first
    mode.
    """
    series, pivots = k[0], []
    for j in range(len(d)):
        own = series + more[j]
        pivot = own + k[j + 1]
        pivots.append(torch.where(pivot > 0, pivot, _TINY * d[j]))
        series = k[j + 1] * own / pivots[j]
    along = torch.linspace(-1.0, 1.0, len(d)).to(d)
    start = torch.stack([along**i for i in range(most)])[..., None] * there
    modes = start.clone()
    for _ in range(_INVERSE_ITERATIONS):
        modes *= d
        for j in range(1, len(d)):
            modes[:, j] += k[j] / pivots[j - 1] * modes[:, j - 1]
        modes[:, -1] /= pivots[-1]
        for j in reversed(range(len(d) - 1)):
            modes[:, j] = (modes[:, j] + k[j + 1] * modes[:, j + 1]) / pivots[j]
        _make_orthogonal(modes, start, d)
    return modes


def _make_orthogonal(modes: torch.Tensor, start: torch.Tensor, d: torch.Tensor) -> None:
    """Take off each mode what it has of those before it, against the diagonal; their largest values become 1.

    Twice, as rounding leaves some of it. A mode of which nothing but rounding is left begins again.
    """
    weighted: list[torch.Tensor] = []
    for i, (mode, first) in enumerate(zip(modes, start, strict=True)):
        size = _sums(d * mode * mode)
        for again in (False, True):
            for before, dual in zip(modes[:i], weighted, strict=True):
                mode -= _sums(dual * mode) * before
            if not again:
                lost = _sums(d * mode * mode) <= _LOST * size
                mode.copy_(torch.where(lost, first, mode))
        largest = mode.abs().amax(0)
        mode /= torch.where(largest > 0, largest, 1.0)
        along = d * mode
        weighted.append(along / _sums(along * mode).clamp(min=torch.finfo(d.dtype).tiny))


def _sums(values: torch.Tensor) -> torch.Tensor:
    """Return sums over the nodes of each edge, to the bit the same whatever edges stand beside it.

    As ranks must agree on the modes of an edge in the regions of several.
    """
    total = values[0].clone()
    for row in values[1:]:
        total += row
    return total
