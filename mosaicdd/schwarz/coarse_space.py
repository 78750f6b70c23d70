"""The coarse space: hats on the coarse nodes, which carry values across the domain.

A hat is 1 at its node and falls linearly along the lattice lines to 0 at the next coarse nodes. With
restriction by injection at the nodes, row ``i`` of the coarse operator ``A_c = R (I - T) P`` is 1 at the
node and minus the responses there of the one or two subdomains on whose centre lines it lies to the
hats on their perimeters. So it is assembled from the responses of the local solver, for any linear
equation (`coarse_solve`).

The coarse problem, solved by sine transforms where they diagonalise it, else by a factorisation.

Fast sine transforms need one coarse node per lattice cell and a stencil that is symmetric in both
axes. Everything else is assembled from the local solver's responses, factorised and solved by every
rank (replicated), with one collective.
"""

import functools
import itertools
import math
from collections.abc import Callable

import numpy as np
import scipy.fft
import scipy.sparse
import scipy.sparse.linalg
import torch

from mosaicdd.axes import crossed
from mosaicdd.grid.grid import perimeter_nodes
from mosaicdd.parallel.collect import NodeGather
from mosaicdd.parallel.layouts.layout import Layout, Shard
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.schwarz.block import Block
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.layouts import block_of, coarse_is_replicated, count_of_sums, nodes_layout
from mosaicdd.schwarz.local_solvers.lifting import exact_solutions
from mosaicdd.schwarz.sweep import SweepContext
from mosaicdd.schwarz.transfer import Batch, Coarsening, Transfer
from mosaicdd.solvers.transforms.sine_solve import SineSolve
from mosaicdd.tensors import Tensors

_MOST = 2**20  # unknowns of a factorisation: some 8 GB
_NEGLIGIBLE = 1e-9  # response, beside the 1 of the diagonal: what a flow carries upstream
# ``symbol(ky, kx)``: eigenvalues of the coarse operator for the modes ``ky``, ``kx`` from 1, in space ``kz`` first.
Symbol = Callable[..., np.ndarray]
# ``solve(residual, sums, correction)``: this rank's residuals ``(n, touched)`` to the correction on its
# part of the coarse interface; returns ``sums`` added up over the ranks.
CoarseSolver = Callable[[torch.Tensor, np.ndarray, Interface], np.ndarray]


def coarse_solver(
    task: SweepContext, coarsening: Coarsening, responses: torch.Tensor, operator: EllipticOperator
) -> CoarseSolver:
    """Choose and plan the coarse solver; raise `ValueError` if the problem is too large to be factorised.

    ``responses``: weighted centre lines ``(8 q, 2 (m - 1))``, as `coarse_space.hat_responses`; ``operator``: whose
    symmetries the coarse operator has.
    """
    if coarsening.points > 1 or not operator.reflective:
        if coarsening.size > _MOST:
            raise ValueError(
                f"the coarse problem has {coarsening.size} unknowns, every rank would factorise it, up to "
                f"{_MOST}; take fewer cells, or coarse_points=1"
            )
        return _replicated(task, coarsening, _factorised(assemble(coarsening, responses)))
    symbol = sine_symbol(task.block, responses)
    if not coarse_is_replicated(coarsening.size, task.ranks.size):
        return _distributed(task, symbol)
    modes = crossed(*(np.arange(1, n + 1) for n in task.block.lattice.subdomains))
    solve = by_sine_transforms(1.0 / symbol(*modes), responses.device)
    return _replicated(task, coarsening, solve, responses.device)


def sine_symbol(block: Block, responses: torch.Tensor) -> Symbol:
    """Return the eigenvalues of the coarse operator, its stencil made symmetric in all axes."""
    lattice = block.lattice
    axes = len(lattice.cells)
    middle = sum((lattice.spacing - 1) * (2 * lattice.spacing - 1) ** k for k in range(axes - 1))
    centre = responses[:, middle].double().cpu().numpy()
    # Neighbours that lie beside the centre along the same axes, and apart along them: corners, edges, faces.
    apart = perimeter_nodes((2,) * axes) != 1
    kinds = [np.array(kind) for kind in itertools.product((False, True), repeat=axes) if any(kind)]
    weights = [(kind, centre[(apart == kind).all(axis=1)].mean()) for kind in kinds]

    def symbol(*modes: np.ndarray) -> np.ndarray:
        along = [2 * np.cos(np.pi * k / n) for k, n in zip(modes, lattice.cells, strict=True)]
        total = 1.0
        for kind, weight in weights:
            total = total - weight * math.prod(itertools.compress(along, kind))
        return np.asarray(total)

    return symbol


def assemble(coarsening: Coarsening, responses: torch.Tensor) -> scipy.sparse.csc_array:
    """Assemble ``A_c = R (I - T) P`` of the whole lattice, ``(size, size)``.

    ``responses``: weighted centre lines ``(8 q, 2 (m - 1))``, as `coarse_space.hat_responses`.
    """
    lattice, q = coarsening.lattice, coarsening.points
    length = responses.shape[1] // 2
    along = torch.arange(coarsening.step - 1, length, coarsening.step)
    at_nodes = responses.double().cpu()[:, torch.cat([along, along + length])]  # (8 q, 2 (2 q - 1))
    whole = Block.whole(lattice)
    tensors: Tensors = {"device": torch.device("cpu"), "dtype": torch.float64}
    numbers = Interface(whole, **tensors)
    numbers.flat.fill_(-1.0)
    coarsening.spread(torch.arange(coarsening.size, dtype=torch.float64)[None], numbers)
    transfer = Transfer(whole, **tensors)
    everything = whole.ring(0)
    count, nodes = math.prod(lattice.subdomains), 2 * (2 * q - 1)
    columns = torch.empty(count, 8 * q, dtype=torch.float64)  # on the perimeters
    transfer.restrict(numbers, everything, columns)
    rows = torch.empty(count, nodes, dtype=torch.float64)  # on the centre lines
    transfer.take(numbers, everything, rows)
    weighted = torch.empty(len(at_nodes), count, nodes, dtype=torch.float64)
    for hat, row in zip(at_nodes, weighted, strict=True):
        row.copy_(hat.expand(count, nodes))
        transfer.weigh_at_edges(row, everything)
    once = torch.ones(nodes, dtype=torch.bool)
    once[2 * q - 1 + q - 1] = False  # the centre stands in both lines
    r, c, w = torch.broadcast_tensors(
        rows[:, once, None], columns[:, None], weighted.permute(1, 2, 0)[:, once]
    )
    inside = (c >= 0) & (w.abs() > _NEGLIGIBLE)
    entries = (-w[inside].numpy(), (r[inside].long().numpy(), c[inside].long().numpy()))
    shape = (coarsening.size, coarsening.size)
    matrix = scipy.sparse.coo_array(entries, shape=shape).tocsc()
    return matrix + scipy.sparse.eye_array(coarsening.size, format="csc")


def _factorised(matrix: scipy.sparse.csc_array) -> Callable[[torch.Tensor], torch.Tensor]:
    """Factorise; the pattern is symmetric, and the diagonal large enough to pivot on."""
    factors = scipy.sparse.linalg.splu(
        matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.01, options={"SymmetricMode": True}
    )
    return lambda nodes: torch.from_numpy(factors.solve(nodes.cpu().numpy().T).T)


def by_sine_transforms(
    inverse: np.ndarray, device: torch.device
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Plan the solve by the inverse eigenvalues of the modes, ``(K_y - 1, K_x - 1)``."""
    shape, axes = inverse.shape, range(1, 1 + inverse.ndim)
    transform = {"type": 1, "axes": tuple(axes), "overwrite_x": True}

    def on_cpu(nodes: torch.Tensor) -> torch.Tensor:
        transformed = scipy.fft.dstn(nodes.numpy().reshape(-1, *shape), **transform)
        transformed *= inverse
        return torch.from_numpy(scipy.fft.idstn(transformed, **transform)).flatten(1)

    if device.type == "cpu":
        return on_cpu
    there = torch.from_numpy(inverse / math.prod(2 * (n + 1) for n in shape)).to(device)

    def on_gpu(nodes: torch.Tensor) -> torch.Tensor:
        r = nodes.to(device).unflatten(1, shape)
        transformed = functools.reduce(sine_transform, axes, r) * there
        return functools.reduce(sine_transform, axes, transformed).flatten(1)

    return on_gpu


def _replicated(
    task: SweepContext,
    coarsening: Coarsening,
    solve: Callable[[torch.Tensor], torch.Tensor],
    device: torch.device | None = None,
) -> CoarseSolver:
    """Plan the replicated coarse solve: one collective, and the same answer on all ranks.

    ``solve``: right-hand sides ``(n, size)`` to solutions; ``device``: that it wants them on.
    """
    ranks = task.ranks
    blocks = (block_of(ranks, task.block.lattice, rank) for rank in range(ranks.size))
    places = [coarsening.touched(block) for block in blocks]
    sums = count_of_sums(task.problems)
    gather = NodeGather(
        ranks, places, coarsening.size, problems=task.problems, sums=sums, device=device
    )
    communicating, solving = task.clock.part("communication"), task.clock.part("coarse")

    def correct(residual: torch.Tensor, sums: np.ndarray, correction: Interface) -> np.ndarray:
        with communicating:
            nodes, totals = gather(residual, sums)
        with solving:
            coarsening.spread(solve(nodes).to(correction.flat), correction)
        return totals

    return correct


def _distributed(task: SweepContext, symbol: Symbol) -> CoarseSolver:
    """Plan distributed sine transforms: each rank transforms some rows and columns.

    For one coarse node per lattice cell. Four redistributions, of all problems together, and one reduction take
    the place of the one collective.
    """
    ranks, block, lattice = task.ranks, task.block, task.block.lattice
    axes = range(len(lattice.subdomains))
    own = Layout(lattice.subdomains, ranks.dims, tuple(map(Shard, axes)))

    def eigenvalues(*parts: slice) -> np.ndarray:
        return symbol(*crossed(*(np.arange(part.start, part.stop) + 1 for part in parts)))

    target = nodes_layout(ranks, lattice, halo=block.halo)
    solve = SineSolve(own, target, ranks, problems=task.problems)
    inverse = solve.inverse(eigenvalues)
    mine = np.empty((task.problems, *own.local_shape(ranks.rank)))
    solution = np.empty((task.problems, *target.local_shape(ranks.rank)))
    ends = zip(block.first, block.last, lattice.subdomains, strict=True)
    inner = [slice(max(a, 1) - a, min(b, n) + 1 - a) for a, b, n in ends]
    communicating, solving = task.clock.part("communication"), task.clock.part("coarse")

    def correct(residual: torch.Tensor, sums: np.ndarray, correction: Interface) -> np.ndarray:
        with communicating:
            totals = ranks.sum(sums) if len(sums) else sums
        with solving:
            torch.from_numpy(mine).copy_(residual.view(mine.shape))
            solve(mine, inverse, solution)
            values = torch.from_numpy(solution).to(correction.flat)
            for axis in axes:
                correction.in_order(axis)[:, *inner] = values
        return totals

    return correct


def sine_transform(values: torch.Tensor, axis: int) -> torch.Tensor:
    """Return ``2 sum_j values_j sin(pi (j + 1) (k + 1) / (n + 1))`` along one axis (DST-I).

    Applied twice it multiplies by ``2 (n + 1)``.
    """
    n = values.shape[axis]
    zero = torch.zeros_like(values.narrow(axis, 0, 1))
    odd = torch.cat([zero, values, zero, -values.flip(axis)], dim=axis)
    return -torch.fft.rfft(odd, dim=axis).imag.narrow(axis, 1, n)


class CoarseSpace:
    """The coarse correction ``c = A_c^-1 R (T v - v)`` and its effect on the interface.

    Parameters
    ----------
    operator
        Whose equation is solved.
    responses
        Centre lines for a hat on each coarse node around a subdomain, weighted by `Lattice.hat`, ``(8 q, 2 (m - 1))``.
    points
        Coarse nodes per lattice cell along a line, ``q``.
    """

    def __init__(
        self, task: SweepContext, operator: EllipticOperator, responses: torch.Tensor, points: int
    ):
        tensors, problems = task.tensors, task.problems
        self._coarsening = coarsening = Coarsening(task.block.lattice, points)
        self._responses = responses = hat_responses(task.block, operator, responses, points)
        self._solve = coarse_solver(task, coarsening, responses, operator)
        coarse = coarsening.block(task.block)
        self._correction = Interface(coarse, problems=problems, **tensors)
        self._transfer = Transfer(coarse, **tensors)
        touched = len(coarsening.touched(task.block))
        self._residual = torch.empty(problems, touched, **tensors)
        nodes = len(coarsening.lattice.subdomain.perimeter)
        self._around = torch.empty(problems * task.largest, nodes, **tensors)
        self._moving = task.clock.part("gather_scatter")
        self._solving = task.clock.part("coarse")

    def correct(
        self, v: Interface, out: Interface, residual: torch.Tensor, sums: np.ndarray, *, alone: bool
    ) -> np.ndarray:
        """Solve for the correction to the residual ``T v - v``, or a multiple of it.

        Returns ``sums``, added up over the ranks by the way.

        Parameters
        ----------
        out
            Of the sweep; the residual is ``out - v``.
        residual
            It, at the owned lattice nodes, ``(n, rows, columns)``.
        alone
            Whether, at nodes of other ranks, ``out`` holds this rank's contribution alone.
        """
        if self._coarsening.points == 1:  # there are no others
            return self._solve(residual.flatten(1), sums, self._correction)
        self._coarsening.sample(out, self._residual, minus=v, alone=alone)
        return self._solve(self._residual, sums, self._correction)

    def sweep(self, batch: Batch, out: torch.Tensor) -> None:
        """Write ``T P c`` on the centre lines of a batch, as they respond, to ``out``, ``(B, 2 (m - 1))``."""
        around = self._around[: len(out)]
        with self._moving:
            self._transfer.restrict(self._correction, batch, around)
        with self._solving:
            torch.mm(around, self._responses, out=out)


def hat_responses(
    block: Block, operator: EllipticOperator, responses: torch.Tensor, points: int
) -> torch.Tensor:
    """Return weighted responses ``(8 q, 2 (m - 1))`` that reproduce the exact solutions that the hats do.

    For a linear local solver under the lifting this changes nothing; one that is not linear gives responses that do
    not add up, and the coarse operator would be wrong just for the smoothest functions.
    """
    subdomain = block.lattice.subdomain
    hats = subdomain.hats(points)
    around, inside, known = (  # (4 m, J), (2 (m - 1), J) and (8 q, J)
        exact_solutions(operator, subdomain, 2, where)
        for where in (subdomain.perimeter, subdomain.centre_lines, subdomain.coarse_nodes(points))
    )
    kept = np.abs(hats.T @ known - around).max(axis=0) < 1e-12
    if not kept.any():
        return responses
    known, inside = known[:, kept], block.lattice.centre_weights[:, None] * inside[:, kept]
    missing = inside.T - known.T @ responses.double().cpu().numpy()
    return responses + torch.as_tensor(np.linalg.pinv(known.T) @ missing).to(responses)
