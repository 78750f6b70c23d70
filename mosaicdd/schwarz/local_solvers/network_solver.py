"""A network as a local solver: lift, scale, apply, scale back.

A network linear in ``g`` is compiled, in float64, to one dense operator for the points of a plan.
Any other is evaluated in chunks of subdomains, so that its activations stay within a bound; the lifting
around it, which holds most of the values, keeps the iteration's precision whatever the network's is.

Before any work a solver is tested. The lifting alone gives smooth data a plausible answer, whatever network stands behind
it; on white noise it does not, and a network that has learned nothing is off by as much as the solution itself.
"""

import copy
import functools
from typing import Unpack

import numpy as np
import torch

from mosaicdd.networks.network import Network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.schwarz.local_solvers.bound import OutsideRange, Plan, SharedSolver
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.local_solvers.lifting import Lifting, unit_points
from mosaicdd.schwarz.local_solvers.plans import linear_plan
from mosaicdd.schwarz.local_solvers.source import Source
from mosaicdd.schwarz.local_solvers.training_range import GuardedSolver, SpectrumRange
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.tensors import Tensors
from mosaicdd.unsupported import Unsupported

# A processor is fastest when the activations stay in its cache; a GPU wants large products.
_ACTIVATION_BYTES = {"cpu": 2**22, "cuda": 2**28}


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

    Attributes
    ----------
    precision
        In which a network that is not linear is evaluated; None for that of the iteration.
    """

    def __init__(
        self,
        name: str,
        operator: EllipticOperator,
        subdomain: Subdomain,
        network: Network,
        card: ModelCard,
        source: Source | None = None,
        outside: str = "",
    ):
        self.name, self.outside, self.operator = name, outside, operator
        self.subdomain, self.source, self.network = subdomain, source, network
        self.card = card
        self.linear = network.linear
        # The effect of a source is known at nodes only.
        self.between_nodes = source is None and getattr(network, "between_nodes", True)
        self.training_range = SpectrumRange(**card.spectrum) if card.spectrum else None
        self._compiled: dict[bytes, np.ndarray] = {}
        self.precision: torch.dtype | None = None

    def in_precision(self, name: str) -> "NetworkSolver":
        """Return the solver with its network, which is not linear, evaluated in another precision."""
        if self.linear:
            return super().in_precision(name)
        changed = copy.copy(self)
        changed.precision = getattr(torch, name)
        return changed

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
        if self.linear:
            rows = self.matrix(points)
            return linear_plan(rows, points, self.subdomain, weights=weights, **tensors)
        return NetworkPlan(self, points, weights=weights, **tensors)

    def guarded(self) -> GuardedSolver:
        """Return what solves exactly outside of the training range."""
        return GuardedSolver(self)

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

    def plan_points(self, **tensors: Unpack[Tensors]) -> "NetworkPointPlan":
        """Prepare the solve at points that are not fixed, one for each perimeter."""
        if self.source is not None:
            raise Unsupported(
                "what a source adds is known at grid nodes only; points between them need an "
                "equation without a source, or the field, interpolated"
            )
        if not self.between_nodes:
            raise Unsupported(
                f"{self.name} has good values at grid nodes only; interpolate the field"
            )
        return NetworkPointPlan(self, **tensors)

    def outside_range(self, **tensors: Unpack[Tensors]) -> OutsideRange | None:
        """Return what tells perimeters outside of the training range, if the card states one."""
        if self.training_range is None:
            return None
        return functools.partial(self.training_range.outside, lifting=self.lifting(**tensors))

    @torch.no_grad()
    def matrix(self, points: np.ndarray) -> np.ndarray:
        """Compile a network, which must be linear, to its matrix ``(Q, P)``, in float64, once for the same points."""
        if not self.linear:
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


class NetworkPlan:
    """Evaluate a network that is not linear in ``g`` at fixed query points ``(Q, 2)``, (y, x) in cells."""

    @torch.inference_mode()
    def __init__(
        self,
        solver: NetworkSolver,
        points: np.ndarray,
        *,
        weights: np.ndarray | None = None,
        **tensors: Unpack[Tensors],
    ):
        device, dtype = tensors["device"], tensors["dtype"]
        self._precision = inside = solver.precision or dtype
        self._network = copy.deepcopy(solver.network).to(device, inside).eval()
        self._lifting = solver.lifting(**tensors)
        self._basis = self._lifting.basis_tensor(points)
        scaled = torch.as_tensor(unit_points(points, solver.subdomain)).to(device, inside)
        self._weights = None if weights is None else torch.as_tensor(weights).to(device, dtype)
        self._prepared = self._network.prepare(scaled)
        # One layer holds its input, its product and its activation.
        activations = 3 * len(points) * self._network.settings.width * inside.itemsize
        self.chunk = max(1, _ACTIVATION_BYTES[torch.device(device).type] // activations)

    @torch.inference_mode()
    def __call__(self, g: torch.Tensor, out: torch.Tensor) -> None:
        """Write the values ``(B, Q)`` for the perimeters ``g``, ``(B, P)``, to ``out``."""
        for part, result in zip(g.split(self.chunk), out.split(self.chunk), strict=True):
            remainder, scale, coefficients = self._lifting.split(part)
            values = self._network.apply_prepared(remainder.to(self._precision), self._prepared)
            result.copy_(self._lifting.join(values.to(g), scale, coefficients, self._basis))
        if self._weights is not None:
            out *= self._weights


_VALUES = 8  # per perimeter node and perimeter, as of an embedding in 8 channels


class NetworkPointPlan:
    """Evaluate a network, linear or not, where each perimeter has a query point of its own.

    As many perimeters as activations may take, the ``chunk``, are what one call should get at most.
    """

    def __init__(self, solver: NetworkSolver, **tensors: Unpack[Tensors]):
        device, dtype = tensors["device"], tensors["dtype"]
        self._network = copy.deepcopy(solver.network).to(device, dtype).eval()
        self._lifting = solver.lifting(**tensors)
        perimeter = _VALUES * len(solver.subdomain.perimeter) * dtype.itemsize
        self.chunk = max(1, _ACTIVATION_BYTES[torch.device(device).type] // perimeter)

    @torch.inference_mode()
    def __call__(self, g: torch.Tensor, points: np.ndarray) -> torch.Tensor:
        """Return the values ``(B,)`` for perimeters ``(B, P)`` at points ``(B, 2)`` in cells."""
        remainder, scale, coefficients = self._lifting.split(g)
        scaled = torch.as_tensor(unit_points(points, self._lifting.subdomain)).to(g)
        values = self._network(remainder, scaled[:, None])  # (B, 1)
        basis = self._lifting.basis_tensor(points)  # (J, B)
        return (values * scale).squeeze(1) + (coefficients * basis.T).sum(dim=1)


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
