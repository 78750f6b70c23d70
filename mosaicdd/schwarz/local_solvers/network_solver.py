"""A network as a local solver: lift, scale, apply, scale back.

A network linear in ``g`` is compiled, in float64, to one dense operator for the points of a plan.
Any other is evaluated in chunks of subdomains, so that its activations stay within a bound; the lifting
around it, which holds most of the values, keeps the iteration's precision whatever the network's is.

Before any work a solver is tested. The lifting alone gives smooth data a plausible answer, whatever network stands
behind it; on white noise it does not, and a network that has learned nothing is off by as much as the solution
itself.

The range of boundary data that a network has seen, and what is done outside of it.

What a network is given is the remainder of the lifting at unit size, so only its shape counts: the
shares of its energy above some frequencies along the perimeter, how rough it is. Training data set
limits to them; a perimeter above one is outside of the training range, and the network's answer there
is extrapolation. Such subdomains are counted, or handed to the exact local solver.
"""

import copy
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
import torch

from mosaicdd.networks.network import Network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.schwarz.block import Block
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.local_solvers.bound import ChunkedPlan, OutsideRange, Plan, SharedSolver
from mosaicdd.schwarz.local_solvers.exact import ExactSolver, linear_plan
from mosaicdd.schwarz.local_solvers.lifting import Lifting, unit_points
from mosaicdd.schwarz.local_solvers.source import Source
from mosaicdd.schwarz.transfer import Transfer, batch_shape, batches
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.tensors import Tensors
from mosaicdd.unsupported import Unsupported

_PARTS = (16, 8, 4)  # of the perimeter's nodes: wavelengths of 16, 8 and 4 cells
_QUANTILE = 0.999  # so that single draws do not widen the range
_FLAT = 1e-3  # remainder over data below which the shape of the remainder does not matter


def spectrum_range(remainder: torch.Tensor) -> dict[str, tuple]:
    """Return limits for the energy of unit remainders ``(n, P)`` along the perimeter.

    ``frequencies``: waves around the perimeter; ``shares``: of the energy at each and above, the 99.9 % quantile.
    """
    frequencies = tuple(remainder.shape[1] // part for part in _PARTS)
    limits = torch.quantile(_shares(remainder, frequencies), _QUANTILE, dim=0)
    return {"frequencies": frequencies, "shares": tuple(limits.tolist())}


def outside_spectrum(g: torch.Tensor, spectrum: dict[str, Any], lifting: Lifting) -> torch.Tensor:
    """Say which perimeters ``(B, P)`` are beyond the limits of `spectrum_range`: ``(B,)`` booleans.

    Perimeters that the lifting alone describes are inside, whatever is left of them.
    """
    frequencies, shares = spectrum["frequencies"], spectrum["shares"]
    remainder, _ = lifting.remove(g)
    norm = torch.linalg.vector_norm(remainder, dim=1)
    # Waves of frequency k have 4 sin(pi k / P)**2 times their energy in the steps between nodes, so what
    # lies at k and above has at most that part of the energy of all steps: most are inside by these alone.
    ends = remainder[:, 0] - remainder[:, -1]
    steps = torch.linalg.vector_norm(torch.diff(remainder, dim=1), dim=1).hypot(ends)
    bound = min(
        4 * math.sin(math.pi * k / remainder.shape[1]) ** 2 * share
        for k, share in zip(frequencies, shares, strict=True)
    )
    suspect = ~(steps <= math.sqrt(bound) * norm)
    if suspect.any():
        largest = g[suspect].abs().amax(dim=1)
        suspect[suspect.clone()] = norm[suspect] > _FLAT * math.sqrt(g.shape[1]) * largest
    if suspect.any():
        unit = remainder[suspect] / norm[suspect, None]
        limits = torch.tensor(shares, device=g.device, dtype=g.dtype)
        suspect[suspect.clone()] = (_shares(unit, frequencies) > limits).any(dim=1)
    return suspect


def _shares(remainder: torch.Tensor, frequencies: Sequence[int]) -> torch.Tensor:
    """Return the shares of the energy at each frequency and above: ``(B, len(frequencies))``."""
    squares = torch.view_as_real(torch.fft.rfft(remainder, dim=1)).flatten(1).square_()
    waves = torch.arange(squares.shape[1], device=squares.device) // 2  # real, imaginary
    first = torch.tensor((0, *frequencies), device=squares.device)
    sums = squares @ (waves[:, None] >= first).to(squares.dtype)
    total = sums[:, :1]
    return sums[:, 1:] / torch.where(total > 0, total, 1.0)


_BATCH = {"cpu": 1024, "cuda": 65_536}  # on a processor, a cache holds what is made on the way


def subdomains_outside(
    v: Interface, block: Block, outside: OutsideRange, batch_subdomains: int
) -> torch.Tensor:
    """Return whether each owned subdomain is outside of the training range, ``(n, *block.subdomains)``."""
    transfer = Transfer(block, device=v.flat.device, dtype=v.flat.dtype)
    shape = v.problems, *block.region_subdomains
    result = torch.zeros(shape, dtype=torch.bool, device=v.flat.device)
    largest = min(batch_subdomains, _BATCH[v.flat.device.type]) // v.problems
    for batch in batches(block.ring(0), max(1, largest)):
        rows, columns = batch_shape(batch)
        perimeters = v.flat.new_empty(v.problems * rows * columns, 4 * transfer.m)
        transfer.restrict(v, batch, perimeters)
        result[:, *batch] = outside(perimeters).view(-1, rows, columns)
    return result[:, *block.ring(0)]


# A processor is fastest when the activations stay in its cache; a GPU wants large products.
_ACTIVATION_BYTES = {"cpu": 2**22, "cuda": 2**28}
_VALUES = 8  # per perimeter node and perimeter, as of an embedding in 8 channels


@dataclass(eq=False)
class NetworkSolver(SharedSolver):
    """Solve on a subdomain by a trained network under the lifting.

    Parameters
    ----------
    name
        What a result reports: the name or the file it was asked for by.
    network
        One of `networks.registry`; it is not changed.
    card
        What the model file says of it; its lifting degree is used here.
    outside
        Why the operator lies outside of the family that the model was trained for; empty if it does
        not.
    precision
        In which a network that is not linear is evaluated; None for that of the iteration.
    exact_outside
        Whether perimeters outside of the training range, which the card must state, are solved exactly.
        Which these are depends on their values, so the map is not linear.
    """

    name: str
    operator: EllipticOperator
    subdomain: Subdomain
    network: Network
    card: ModelCard
    source: Source | None = None
    outside: str = ""
    precision: torch.dtype | None = None
    exact_outside: bool = False

    def __post_init__(self) -> None:
        self.linear = self.network.linear and not self.exact_outside
        # The effect of a source is known at nodes only.
        at_nodes = self.source is not None or self.exact_outside
        self.between_nodes = not at_nodes and self.network.between_nodes
        self._compiled: dict[bytes, np.ndarray] = {}

    def in_precision(self, name: str) -> "NetworkSolver":
        """Return the solver with its network, which is not linear, evaluated in another precision."""
        if self.linear:
            return super().in_precision(name)
        return replace(self, precision=getattr(torch, name))

    def guarded(self) -> "NetworkSolver":
        """Return the solver that solves exactly outside of the training range."""
        if not self.card.spectrum:
            raise ValueError(
                f"the card of {self.name} states no range of boundary data: leave out "
                "out_of_range='exact'"
            )
        return replace(self, exact_outside=True)

    def plan(
        self, points: np.ndarray, *, weights: np.ndarray | None = None, **tensors: Unpack[Tensors]
    ) -> Plan:
        """Prepare the solve for fixed query points ``(Q, axes)`` inside, (y, x) or (z, y, x) in cells."""
        points = np.asarray(points, dtype=float)
        m = self.subdomain.cells
        if not ((points >= 0) & (points <= m)).all():
            raise ValueError(
                f"query points must lie within 0..{m} cells, got {points.min():g}..{points.max():g}"
            )
        if self.network.linear:
            rows = self.matrix(points)
            plan = linear_plan(rows, points, self.subdomain, weights=weights, **tensors)
        else:
            plan = _network_plan(self, points, weights, **tensors)
        if not self.exact_outside:
            return plan
        by_network, outside_of = plan, self._outside_range(**tensors)
        exact = ExactSolver(self.operator, self.subdomain).plan(points, weights=weights, **tensors)

        def guarded_plan(g: torch.Tensor, out: torch.Tensor) -> None:
            by_network(g, out)
            outside = outside_of(g)
            if outside.any():
                corrected = torch.empty(int(outside.sum()), out.shape[1], **tensors)
                exact(g[outside], corrected)
                out[outside] = corrected

        return guarded_plan

    def require_sound(self) -> None:
        """Raise `ValueError` if the operator is outside of the family, or the network fails its self-test."""
        if self.outside:
            raise ValueError(self.outside)
        error = self_test_error(self)
        if np.isnan(error):
            raise ValueError(
                f"{self.name} answers NaN in its self-test: its weights or its layers hold values that are not finite; "
                "train it again"
            )
        if not error <= _LARGEST:
            raise ValueError(
                f"{self.name} is off by {error:.0%} of the solution in its self-test (at most "
                f"{_LARGEST:.0%}): it does not solve the equation; train it further, or ask for a "
                "certified answer"
            )

    def lifting(self, **tensors: Unpack[Tensors]) -> Lifting:
        """Return the lifting that the network was trained under."""
        return Lifting(self.operator, self.subdomain, self.card.lifting_degree, **tensors)

    def plan_points(
        self, **tensors: Unpack[Tensors]
    ) -> tuple[Callable[[torch.Tensor, np.ndarray], torch.Tensor], int]:
        """Prepare the solve at points that are not fixed, one for each perimeter.

        Returns a function of perimeters ``(B, P)`` and points ``(B, 2)`` in cells to values ``(B,)``, and how many
        perimeters it should get at once.
        """
        if self.source is not None:
            raise Unsupported(
                "what a source adds is known at grid nodes only; points between them need an "
                "equation without a source, or the field, interpolated"
            )
        if not self.between_nodes:
            raise Unsupported(
                f"{self.name} has good values at grid nodes only; interpolate the field"
            )
        device, dtype = tensors["device"], tensors["dtype"]
        network = copy.deepcopy(self.network).to(device, dtype).eval()
        lifting = self.lifting(**tensors)

        @torch.inference_mode()
        def values_at(g: torch.Tensor, points: np.ndarray) -> torch.Tensor:
            remainder, scale, coefficients = lifting.split(g)
            scaled = torch.as_tensor(unit_points(points, self.subdomain)).to(g)
            values = network(remainder, scaled[:, None])  # (B, 1)
            basis = lifting.basis_tensor(points)  # (J, B)
            return (values * scale).squeeze(1) + (coefficients * basis.T).sum(dim=1)

        perimeter = _VALUES * len(self.subdomain.perimeter) * dtype.itemsize
        return values_at, max(1, _ACTIVATION_BYTES[torch.device(device).type] // perimeter)

    def outside_range(self, **tensors: Unpack[Tensors]) -> OutsideRange | None:
        """Return the test of perimeters against the training range, if the card states one."""
        return self._outside_range(**tensors) if self.card.spectrum else None

    def _outside_range(self, **tensors: Unpack[Tensors]) -> OutsideRange:
        lifting = self.lifting(**tensors)
        return functools.partial(outside_spectrum, spectrum=self.card.spectrum, lifting=lifting)

    @torch.no_grad()
    def matrix(self, points: np.ndarray) -> np.ndarray:
        """Compile a linear network to its matrix ``(Q, P)``, in float64, once for the same points."""
        if not self.network.linear:
            raise Unsupported(
                f"{self.name} is not linear in the perimeter values: it has no matrix"
            )
        key = points.tobytes()
        if key not in self._compiled:
            rows = self._in_float64.prepare(torch.as_tensor(unit_points(points, self.subdomain)))
            lifting = self.lifting(device=torch.device("cpu"), dtype=torch.float64)
            self._compiled[key] = lifting.compile(rows.numpy(), points)
        return self._compiled[key]

    @functools.cached_property
    def _in_float64(self) -> Network:
        """The network that is compiled."""
        return copy.deepcopy(self.network).to("cpu", torch.float64)


@torch.inference_mode()
def _network_plan(
    solver: NetworkSolver,
    points: np.ndarray,
    weights: np.ndarray | None = None,
    **tensors: Unpack[Tensors],
) -> ChunkedPlan:
    """Plan a network that is not linear in ``g`` at fixed query points ``(Q, 2)``, (y, x) in cells."""
    device, dtype = tensors["device"], tensors["dtype"]
    inside = solver.precision or dtype
    network = copy.deepcopy(solver.network).to(device, inside).eval()
    lifting = solver.lifting(**tensors)
    basis = lifting.basis_tensor(points)
    factors = 1.0 if weights is None else torch.as_tensor(weights).to(device, dtype)
    prepared = network.prepare(
        torch.as_tensor(unit_points(points, solver.subdomain)).to(device, inside)
    )

    @torch.inference_mode()
    def apply(g: torch.Tensor, out: torch.Tensor) -> None:
        remainder, scale, coefficients = lifting.split(g)
        values = network.apply_prepared(remainder.to(inside), prepared).to(g)
        torch.mul(lifting.join(values, scale, coefficients, basis), factors, out=out)

    # One layer holds its input, its product and its activation.
    activations = 3 * len(points) * network.settings.width * inside.itemsize
    return ChunkedPlan(max(1, _ACTIVATION_BYTES[torch.device(device).type] // activations), apply)


_PERIMETERS = 64  # of white noise, rougher than any data that networks learn from
_LARGEST = 0.5  # share of the solution: a network that has learned nothing is off by more


def self_test_error(local_solver: SharedSolver) -> float:
    """Return the error on white-noise perimeters, relative to the exact discrete solution.

    Root mean squares over the centre lines of 64 perimeters, always the same.
    """
    subdomain = local_solver.subdomain
    tensors: Tensors = {"device": torch.device("cpu"), "dtype": torch.float64}
    rng = np.random.default_rng(0)
    g = torch.from_numpy(rng.standard_normal((_PERIMETERS, len(subdomain.perimeter))))
    points = subdomain.centre_lines
    solvers = (local_solver, ExactSolver(local_solver.operator, subdomain))
    values = [torch.empty(_PERIMETERS, len(points), dtype=torch.float64) for _ in solvers]
    for solver, out in zip(solvers, values, strict=True):
        solver.plan(points, **tensors)(g, out)
    predicted, exact = values
    return float((predicted - exact).norm() / exact.norm())
