"""The samples that training learns from: lifted, in batches, and their errors.

All random choices are functions of the seed and the number of the step, and the same on every
rank: a run that is resumed, or that runs on another number of ranks, makes the same ones.

Shape letters: ``n`` samples, ``B`` subdomains of a pass, ``P`` perimeter nodes, ``Q`` points.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from mosaicdd.networks.network import Network
from mosaicdd.networks.registry import network_for
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.schwarz.local_solvers.lifting import Lifting
from mosaicdd.training.objective import RankGroup

_CHUNK = 1024  # samples at once: of 32 cells, 8 MB in float64


@dataclass(frozen=True)
class LiftedSamples:
    """Unit remainders and the values that belong to them."""

    remainder: torch.Tensor  # ``(n, P)``
    target: torch.Tensor  # ``(n, Q)``
    scale: torch.Tensor  # ``(n, 1)``: an error times the scale is one of the solution itself
    subdomain: Subdomain
    operators: tuple[tuple[EllipticOperator, slice], ...]  # each with its samples, in order

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.remainder)

    def left_by_lifting(self) -> float:
        """Return the mean square of what a network has to add to the lifting."""
        return (self.target * self.scale).double().square().mean().item()


def lift_samples(
    operators: Sequence[tuple[EllipticOperator, slice]],
    subdomain: Subdomain,
    degree: int | None,
    boundary: np.ndarray,
    solution: np.ndarray,
    like: torch.Tensor,
) -> LiftedSamples:
    """Lift boundaries ``(., P)`` and the interior of solutions ``(., m + 1, m + 1)``, or with an axis more.

    Of the whole dataset those of operators with their samples, in order; ``like`` says the device and the type.
    """
    parts = []
    for operator, samples in operators:
        lifting = Lifting(operator, subdomain, degree)
        basis = lifting.basis_tensor(subdomain.interior)
        for start in range(samples.start, samples.stop, _CHUNK):
            chunk = slice(start, min(start + _CHUNK, samples.stop))
            g = torch.as_tensor(boundary[chunk], dtype=torch.float64)
            inner = solution[chunk, *[slice(1, -1)] * subdomain.axes].reshape(len(g), -1)
            remainder, scale, coefficients = lifting.split(g)
            target = (torch.as_tensor(inner, dtype=torch.float64) - coefficients @ basis) / scale
            parts.append([part.to(like) for part in (remainder, target, scale)])
    remainder, target, scale = (torch.cat(column) for column in zip(*parts, strict=True))
    first = operators[0][1].start
    counted = ((a, slice(s.start - first, s.stop - first)) for a, s in operators)
    return LiftedSamples(remainder, target, scale, subdomain, tuple(counted))


@dataclass(frozen=True)
class Pass:
    """One forward pass of a step."""

    g: torch.Tensor  # perimeters ``(B, P)``
    share: float  # factor of its mean loss in the mean over the ranks
    # Points ``(Q, 2)``; for a discrete residual the corner of its window. Of a family there are none
    points: torch.Tensor | tuple[int, ...] | None = None
    # Values ``(B, Q)``, or coordinates of operators; None for the PDE loss
    target: torch.Tensor | None = None

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.g)

    @property
    def kind(self) -> str:
        """Which loss it has."""
        return "pde_loss" if self.target is None else "data_loss"

    def first(self, count: int) -> "Pass":
        """Return a pass over copies of the first samples of this one."""
        target = None if self.target is None else self.target[:count].clone()
        return replace(self, g=self.g[:count].clone(), target=target)


_ORDER, _POINTS = 0, 1  # the two families of random numbers


class Batches:
    """The global batches of a training, chosen by a seed, of all samples at most."""

    def __init__(self, samples: int, batch_size: int, seed: int):
        self.samples = samples
        self.size = min(batch_size, samples)
        self.per_epoch = samples // self.size
        self._seed = seed
        self._epoch = -1
        self._order = torch.empty(0, dtype=torch.long)

    def indices(self, step: int) -> torch.Tensor:
        """Return the samples of a step, ``(batch_size,)``; an epoch has each at most once."""
        epoch, position = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            generator = self._generator(_ORDER, epoch)
            self._order = torch.randperm(self.samples, generator=generator)
            self._epoch = epoch
        return self._order[position * self.size :][: self.size]

    def parts(self, step: int, ranks: RankGroup, micro_batch: int) -> list[torch.Tensor]:
        """Return a rank's samples of a step, split into passes, whose number is equal on all ranks.

        Ranks with sharded weights gather them in every pass. Where the shares differ and passes of
        one sample are asked for, some have two: no part is empty.
        """
        least, most = self.size // ranks.size, -(-self.size // ranks.size)
        count = min(least, -(-most // micro_batch)) if micro_batch else 1
        chosen = self.indices(step)[ranks.share(self.size)]
        return [part.to(ranks.device) for part in chosen.tensor_split(count)]

    def generator(self, step: int) -> torch.Generator:
        """Return the source of the random points of a step."""
        return self._generator(_POINTS, step)

    def _generator(self, family: int, number: int) -> torch.Generator:
        state = np.random.SeedSequence([self._seed, family, number]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))


@torch.no_grad()
def squared_error(
    network: Network,
    samples: LiftedSamples,
    part: slice,
    points: torch.Tensor,
    nodes: torch.Tensor,
) -> float:
    """Return the sum of squared errors of solutions at some of the points, over a part of the samples.

    Divided by the number of values it is the validation MSE of the paper: boundary data of unit
    amplitude, errors not divided by the scale of the remainder.
    """
    total = 0.0
    # Activations that stay in a processor's cache; a linear network has none.
    width = vars(network.settings).get("width", 64)
    chunk = _CHUNK if network.linear else max(1, 2**20 // (len(nodes) * width))
    for operator, run in samples.operators:
        first, last = max(run.start, part.start), min(run.stop, part.stop)
        if first >= last:
            continue
        bound = network_for(network, operator, samples.subdomain)
        prepared = bound.prepare(points[nodes])
        for start in range(first, last, chunk):
            rows = slice(start, min(start + chunk, last))
            values = bound.apply_prepared(samples.remainder[rows], prepared)
            error = (values - samples.target[rows][:, nodes]) * samples.scale[rows]
            total += error.double().square().sum().item()
    return total
