r"""A local solver of a nonlinear equation by a network: the linear equation's solutions, corrected.

The linear equation's answer is exact, in float64, and the correction is in float32. Perimeters and sources outside of
what the network was trained on are solved by Newton's method instead: there its values are of no use.

Responses are from tables of what an equation's derivative is at planes, or at constants. In a subdomain the solution of an
equation in the gradient is nearly a plane, so its derivative is nearly that at the plane through its perimeter; of an
equation with a reaction, that at the constant with as much of it. Tables of planes are over $p / \sqrt{1 + |p|^2}$ for
slopes ``p``, and made of the eighth of the planes that symmetries send to all others. Between entries they are
interpolated linearly, so sums over the hats are met as well as in the entries.

Shape letters as in `bound`; ``L = 2 (m - 1)`` nodes of centre lines.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.lattice.transfer import Batch, batch_shape
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.local_solvers.networks.correction import CompiledCorrection, CorrectionNetwork
from mosaicdd.local_solvers.networks.symmetry import Symmetry, images
from mosaicdd.local_solvers.networks.unrolled import CompiledUnrolled, UnrolledNetwork
from mosaicdd.local_solvers.nonlinear.nonlinear import (
    NewtonPlan,
    NonlinearSolver,
    Share,
    split,
)
from mosaicdd.local_solvers.source import at_nodes, source_operator

_CHUNK = 256  # subdomains of a pass of the network, whose activations stay in the cache
_STEP = 1e-4  # of differences, in units of the solution


@dataclass(frozen=True)
class Learned:
    """A network of corrections and what it is for."""

    network: CorrectionNetwork | UnrolledNetwork
    # Largest values of what the network is limited by, by the names of a model's card
    limits: Mapping[str, float]

    def __call__(self, solver: NonlinearSolver, exact: NewtonPlan, ring: bool) -> "CorrectedPlan":
        """Plan it for the block of Newton's method; see `NonlinearSolver`."""
        return CorrectedPlan(self, solver, exact, ring)


class CorrectedPlan:
    """The linear equation's solutions, corrected by a network where that was trained."""

    def __init__(self, learned: Learned, solver: NonlinearSolver, exact: NewtonPlan, ring: bool):
        self._exact, self._solver, self._sight = exact, solver, learned.network.sight
        square, block, device = solver.subdomain, exact.block, exact.device
        self._block, self._device, self._at = block, device, square.centre_lines
        rows = ExactSolver(solver.base, square).matrix[self._at[:, 0], self._at[:, 1]]
        self._linear = torch.from_numpy(rows.T.copy()).to(device)  # (P, L)
        self._network = learned.network.compiled(solver.base, square, learned.limits, device)
        self._lines: torch.Tensor | None = None
        self._seen: torch.Tensor | None = None
        self._late: list[tuple[Batch, torch.Tensor, torch.Tensor]] = []
        self._apart = torch.zeros(block.region_subdomains, dtype=torch.bool, device=device)
        if ring:
            self._mark_ring()
        self._hats = torch.from_numpy(square.hats()).to(device)  # (8, P)
        self._tabulate: Callable[[torch.Tensor, torch.Tensor], None]
        network = self._network
        self.closely = isinstance(network, CompiledCorrection)
        if isinstance(network, CompiledUnrolled):
            planes = PlaneResponses(exact, network.steepest)
            self._tabulate = lambda x, out: planes.write(network.slopes(x), out)
        else:
            self._tabulate = ConstantResponses(exact, network.largest).write

    @property
    def left(self) -> torch.Tensor:
        """How far from convergence Newton's method left each subdomain that was left to it."""
        return self._exact.left

    def load(self, f: torch.Tensor | None) -> None:
        """Solve the linear equation for a source, once."""
        self._exact.load(f)
        self._lines = self._seen = None
        if f is None:
            return
        inverse = self._inverse
        rows, columns = self._block.region_subdomains
        count, s = len(self._at), self._block.lattice.spacing
        inside = 2 * s - 1
        cut = f[1:, 1:].unfold(0, inside, s).unfold(1, inside, s)
        self._lines = f.new_empty(rows, columns, count)
        self._seen = f.new_empty(rows, columns, inverse.shape[1] - count, dtype=torch.float32)
        for row, patches in enumerate(cut):
            w = patches.flatten(1) @ inverse
            self._lines[row] = w[:, :count]
            self._seen[row] = self._network.seen(w[:, count:])

    @property
    def _inverse(self) -> torch.Tensor:
        """What a source does on the centre lines, and to what the network sees, ``(I, L + K)``."""
        base, square = self._solver.base, self._solver.subdomain
        columns = np.concatenate([at_nodes(square, self._at), self._sight], axis=1)
        return torch.from_numpy(source_operator(base, square, columns)).to(self._device)

    def solve(self, batch: Batch, g: torch.Tensor, out: torch.Tensor) -> None:
        """Correct the linear solutions; what is out of range is left to Newton's method."""
        lines, seen = self._of(batch)
        if lines is None:
            torch.mm(g, self._linear, out=out)
        else:
            torch.addmm(lines, g, self._linear, out=out)
        outside = self._apart[batch].flatten()
        self.left[batch] = 0.0
        for portion in split(len(g), _CHUNK):
            x, w = self._network.input(g[portion]), None if seen is None else seen[portion]
            out[portion] += self._network(x, w)
            outside[portion] |= self._network.outside(x, w)
        self._leave(batch, g, outside, out)

    def responses(self, batch: Batch, g: torch.Tensor, *, closely: bool) -> torch.Tensor:
        """Differentiate what `solve` gives: by a table, or the correction by differences, if it has them."""
        differ = (
            self._network if closely and isinstance(self._network, CompiledCorrection) else None
        )
        exact = (
            torch.float32 if differ is None else torch.float64
        )  # as tables are, or the linear part
        out = g.new_empty(len(g), len(self._hats), len(self._at), dtype=exact)
        _, seen = self._of(batch)
        for portion in split(len(g), _CHUNK):
            x, w = self._network.input(g[portion]), None if seen is None else seen[portion]
            if differ is None:
                self._tabulate(x, out[portion])
            else:
                self._differentiate(differ, x, w, out[portion])
        self._leave(batch, g, self.outside(batch, g), out)
        return out

    def rest(
        self, share: Share, *, responses: bool = False
    ) -> Iterator[tuple[Batch, torch.Tensor]]:
        """Give what Newton's method makes of subdomains that are out of range, on any rank; see `NonlinearPlan`."""
        late, self._late = self._late, []
        told = [rows for _, _, rows in late]
        work = self._exact.derived if responses else self._exact.solved
        every = share(
            torch.cat(told).cpu().numpy(),
            lambda rows: work(torch.from_numpy(rows).to(self._device)).cpu().numpy(),
        )
        parts = torch.from_numpy(every).to(self._device).split([len(rows) for rows in told])
        for (batch, outside, _), values in zip(late, parts, strict=True):
            if not len(values):
                continue
            if not responses:
                self.left[batch][outside.view(batch_shape(batch))] = values[:, -1]
                values = values[:, :-1]
            out = values.new_zeros(len(outside), values.shape[1])
            out[outside] = values
            yield batch, out.unflatten(1, (len(self._hats), -1)) if responses else out

    def _differentiate(
        self,
        network: CompiledCorrection,
        x: torch.Tensor,
        seen: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        """Differentiate the correction by differences: the linear part is known."""
        out[:] = self._hats @ self._linear
        for number, quotient in enumerate(network.differences(x, seen, self._hats.float(), _STEP)):
            out[:, number] += quotient

    def outside(self, batch: Batch, g: torch.Tensor) -> torch.Tensor:
        """Say which subdomains are left to Newton's method."""
        _, seen = self._of(batch)
        return self._apart[batch].flatten() | self._network.outside(self._network.input(g), seen)

    def _of(self, batch: Batch) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return what the source does in a batch."""
        if self._lines is None or self._seen is None:
            return None, None
        return self._lines[batch].flatten(0, 1), self._seen[batch].flatten(0, 1)

    def _leave(
        self, batch: Batch, g: torch.Tensor, outside: torch.Tensor, out: torch.Tensor
    ) -> None:
        """Leave subdomains of a batch to `rest`."""
        out[outside] = 0.0
        self._late.append((batch, outside, self._exact.told(batch, outside, g)))

    def _mark_ring(self) -> None:
        """Mark the subdomains along the domain's edge."""
        for axis in (0, 1):
            for end, at in zip((0, -1), self._block.at_edge(axis), strict=True):
                if at:
                    self._apart.select(axis, end).fill_(True)


_STEPS = 8  # of the table, from no slope to the steepest
_BATCH = 5  # planes, with all hats, whose vectors stay in the cache
_CONSTANTS = 25  # from zero to the largest
_BEYOND = 1.5  # times the steepest: the corners of a table over a disk


class PlaneResponses:
    """Looks up responses, the derivative of Newton's method in subdomains, by slopes up to the steepest."""

    def __init__(self, exact: NewtonPlan, steepest: float):
        self._step = _share(steepest) / _STEPS
        lines = exact.square.centre_lines
        nodes, back = np.unique(lines, axis=0, return_inverse=True)
        first = np.unique(back, return_index=True)[1]
        steps = np.arange(_STEPS + 1)
        octant = np.array([(y, x) for y in steps for x in steps if y <= x])
        planes = self._planes(octant, exact, steepest)
        parts = [
            exact.derivative(portion, {})[..., first].cpu() for portion in planes.split(_BATCH)
        ]
        responses = torch.cat(parts).numpy()
        side, m = 2 * _STEPS + 1, exact.square.cells
        table = np.empty((side, side, *responses.shape[1:]), dtype=responses.dtype)
        matrices = Symmetry(4 * m).matrices.long().numpy()
        hats = images(exact.square.perimeter[:: m // 2], m)
        for matrix, hat, line in zip(matrices, hats, images(nodes, m), strict=True):
            y, x = (_STEPS + octant @ matrix.T).T[..., None, None]
            table[y, x, hat[:, None], line] = responses
        flat = table[..., back.ravel()].reshape(side**2, -1)
        self._table, self._side = torch.from_numpy(flat).to(exact.device), side

    def _planes(self, octant: np.ndarray, exact: NewtonPlan, steepest: float) -> torch.Tensor:
        """Return planes in squares, ``(n, m + 1, m + 1)``."""
        share = octant * self._step
        size = np.linalg.norm(share, axis=1, keepdims=True)
        share *= np.minimum(1.0, _share(_BEYOND * steepest) / np.maximum(size, 1e-9))
        slopes = share / np.sqrt(1.0 - np.square(share).sum(axis=1, keepdims=True))
        along = np.arange(exact.square.cells + 1) * exact.square.spacing
        planes = slopes[:, 0, None, None] * along[:, None] + slopes[:, 1, None, None] * along
        return torch.from_numpy(planes).to(exact.device)

    def write(self, slopes: torch.Tensor, out: torch.Tensor) -> None:
        """Write the responses ``(B, 8, L)`` for slopes ``(B, 2)``."""
        steep = slopes.square().sum(dim=1, keepdim=True)
        place = slopes / ((1.0 + steep).sqrt() * self._step) + _STEPS
        place = place.nan_to_num(nan=_STEPS).clamp(0.0, self._side - 1.001)
        low = place.floor()
        (y, x), (up, right) = low.long().T, (place - low).T
        corner = y * self._side + x
        at = torch.stack([corner, corner + 1, corner + self._side, corner + self._side + 1], 1)
        weights = torch.stack(
            [(1 - up) * (1 - right), (1 - up) * right, up * (1 - right), up * right], 1
        )
        _mix(self._table, at, weights, out)


class ConstantResponses:
    """Looks responses up by the reaction, the derivative by a value that is the same everywhere, up to the largest."""

    def __init__(self, exact: NewtonPlan, largest: float):
        self._newton, self._numbers = exact.newton, exact.numbers
        values = torch.linspace(0.0, largest, _CONSTANTS, dtype=torch.float64, device=exact.device)
        reactions = self._newton.reaction(values, self._numbers)
        self._reactions, order = reactions.float().sort()
        side = exact.square.cells + 1
        squares = values[order, None, None].expand(-1, side, side)
        parts = [exact.derivative(portion, exact.numbers) for portion in squares.split(_BATCH)]
        self._table = torch.cat(parts).flatten(1)

    def write(self, g: torch.Tensor, out: torch.Tensor) -> None:
        """Write the responses ``(B, 8, L)`` for perimeters ``(B, P)``."""
        reaction = self._newton.reaction(g, self._numbers).mean(dim=1).to(self._reactions)
        low = (torch.searchsorted(self._reactions, reaction) - 1).clamp(0, _CONSTANTS - 2)
        left, right = self._reactions[low], self._reactions[low + 1]
        share = ((reaction - left) / (right - left).clamp(min=1e-300)).nan_to_num().clamp(0.0, 1.0)
        _mix(self._table, torch.stack([low, low + 1], 1), torch.stack([1 - share, share], 1), out)


def _mix(table: torch.Tensor, at: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
    """Write weighted sums of entries of a table."""
    mixed = torch.nn.functional.embedding_bag(
        at, table, mode="sum", per_sample_weights=weights.to(table)
    )
    out.copy_(mixed.view(out.shape))


def _share(slope: float) -> float:
    return slope / math.sqrt(1.0 + slope**2)
