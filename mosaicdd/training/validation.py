"""The errors on samples that are never trained on.

Shape letters: ``Q`` interior nodes.
"""

from dataclasses import dataclass

import torch

from mosaicdd.local_solvers.networks.family import MatrixNetwork
from mosaicdd.local_solvers.networks.network import Network
from mosaicdd.local_solvers.networks.registry import is_family
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.samples import LiftedSamples

_CHUNK = 1024  # samples at once: of 32 cells, 4 MB in float32
_SAMPLED_NODES = 64


@dataclass(frozen=True)
class HeldOut:
    """Random problems, and windows of larger solutions, as a Schwarz iteration feeds them."""

    # validation, windows: the samples of both kinds
    validation: LiftedSamples
    windows: LiftedSamples
    points: torch.Tensor  # interior nodes ``(Q, 2)`` in ``[-1, 1]``
    # Indices of the nodes that are enough between the first and the last validation
    sampled: torch.Tensor

    @staticmethod
    def sampled_nodes(
        network: Network, points: torch.Tensor, generator: torch.Generator
    ) -> torch.Tensor:
        """Choose nodes: a network that is not linear is evaluated at each pair of a perimeter and one."""
        if network.linear:
            return torch.arange(len(points), device=points.device)
        return torch.randperm(len(points), generator=generator)[:_SAMPLED_NODES].to(points.device)

    @property
    def samples_nodes(self) -> bool:
        """Whether the sampled nodes are not all."""
        return len(self.sampled) < len(self.points)

    def squared_errors(self, network: Network, ranks: RankGroup, everywhere: bool) -> list[float]:
        """Return the sums of squared errors on a rank's share of both kinds of samples.

        Divided by their number they are the validation MSE of the paper: boundary data of unit
        amplitude, errors not divided by the scale of the remainder.
        """
        nodes = self._nodes(everywhere)
        return [
            _squared_errors(network, samples, ranks.share(len(samples)), self.points, nodes)
            for samples in (self.validation, self.windows)
        ]

    def means(self, sums: list[float], everywhere: bool) -> list[float]:
        """Divide the sums over all ranks by the number of values in them."""
        count = len(self._nodes(everywhere))
        kinds = (self.validation, self.windows)
        return [total / (len(samples) * count) for total, samples in zip(sums, kinds, strict=True)]

    def _nodes(self, everywhere: bool) -> torch.Tensor:
        if everywhere:
            return torch.arange(len(self.points), device=self.points.device)
        return self.sampled


@torch.no_grad()
def _squared_errors(
    network: Network,
    samples: LiftedSamples,
    part: slice,
    points: torch.Tensor,
    nodes: torch.Tensor,
) -> float:
    """Return the sum of squared errors of some samples' solutions at some interior nodes."""
    total = 0.0
    # Activations that stay in a processor's cache; a linear network has none.
    width = getattr(network.settings, "width", 64)
    chunk = _CHUNK if network.linear else max(1, 2**20 // (len(nodes) * width))
    for operator, run in samples.operators:
        first, last = max(run.start, part.start), min(run.stop, part.stop)
        if first >= last:
            continue
        bound: Network | MatrixNetwork = network
        if is_family(network):
            bound = network.at(operator, samples.subdomain)
        prepared = bound.prepare(points[nodes])
        for start in range(first, last, chunk):
            rows = slice(start, min(start + chunk, last))
            values = bound.apply_prepared(samples.remainder[rows], prepared)
            error = (values - samples.target[rows][:, nodes]) * samples.scale[rows]
            total += error.double().square().sum().item()
    return total
