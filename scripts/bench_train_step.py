"""What the PDE loss costs: time and memory of a step without it, by Taylor and by autograd.

Beside them the paper's Table 3: memory of a step on a V100 for 5, 320 and 640 subdomains.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from step_cost import seconds_per_call
from tables import publish, table

from mosaicdd.lattice.lattice import Subdomain
from mosaicdd.local_solvers.lifting import unit_points
from mosaicdd.local_solvers.networks.registry import build_network
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.training.equation_lesson import EquationLosses
from mosaicdd.training.memory import hold_freed_memory, kept_bytes, samples_per_pass
from mosaicdd.training.objective import Objective
from mosaicdd.training.optimisers import build_optimiser
from mosaicdd.training.samples import Pass
from mosaicdd.training.settings import TrainingSettings

# Network, subdomains, and points per step: data points (a linear network learns from all 961) and
# collocation points.
_CASES = [*(("sdnet", b, 64) for b in (5, 32, 128, 320)), ("linear", 256, 32), ("linear", 256, 64)]
_CASES += [("deeponet", 256, 64), ("mlp", 128, 64), ("sdnet-concat", 32, 64)]
_PAPER = [
    ["5", "0.05 GB", "0.503 GB", "10.1"],
    ["320", "2.77 GB", "15.11 GB", "5.5"],
    ["640", "5.54 GB", "out of memory", ""],
]


def main() -> None:
    """Measure all cases, print the tables and write them to ``benchmarks/``."""
    torch.set_num_threads(1)
    hold_freed_memory()
    rows = [_row(*case) for case in _CASES]
    header = [
        "network",
        "subdomains",
        "points",
        "data only",
        "with PDE, Taylor",
        "with PDE, autograd",
    ]
    header += ["times", "times", "kept: data", "Taylor", "autograd"]
    ours = table(header, rows)
    paper = table(["subdomains", "no PDE loss", "with PDE loss", "ratio"], _PAPER)
    text = (
        "One step: forward and backward passes at some data points (`linear`: at all 961) and at as "
        "many collocation points, and the update of the weights by the default optimiser (SOAP, "
        "its cheapest step), float32, processor time. As in training, a pass has as many "
        "subdomains as keep 32 MB, with and without PDE loss. *Times*: a step with PDE loss over one "
        "without, by Taylor propagation and by double backward, the paper's way. *Kept*: bytes that "
        f"the largest pass keeps for its backward pass.\n\n{ours}\n\nThe paper's Table 3, one V100:"
        f"\n\n{paper}"
    )
    publish("train_step", "What the PDE loss costs", text)


def _row(name: str, batch: int, count: int) -> list[str]:
    torch.manual_seed(0)
    subdomain = Subdomain()
    network = build_network(name, {}, subdomain)
    g = torch.randn(batch, 4 * subdomain.cells)
    triangle = torch.rand(count, 2).sort(dim=1).values  # as in training: all in one of eight
    points = triangle
    if network.linear:
        points = torch.as_tensor(unit_points(subdomain.interior, subdomain)).float()
    target = torch.randn(batch, len(points))

    data, pde = Pass(g, 1.0, points, target), Pass(g, 1.0, triangle)
    steps = [
        _Step(network, subdomain, way, passes)
        for way, passes in (("taylor", [data]), ("taylor", [data, pde]), ("autograd", [data, pde]))
    ]
    times = [seconds_per_call(step) for step in steps]
    kept = [f"{step.kept / 2**20:.1f} MB" for step in steps]
    ratios = [f"{seconds / times[0]:.2f}" for seconds in times[1:]]
    return [name, str(batch), str(count), *(f"{1e3 * t:.1f} ms" for t in times), *ratios, *kept]


class _Step:
    """The passes of a step, split as in training, and the update of the weights."""

    def __init__(
        self, network: torch.nn.Module, subdomain: Subdomain, way: str, passes: list[Pass]
    ):
        settings = TrainingSettings(pde_weight=1.0, laplacian=way)
        self._objective = Objective(
            network, EquationLosses(network, LAPLACE.at(), subdomain, settings)
        )
        samples = samples_per_pass(self._objective, passes)
        self._passes = [part for whole in passes for part in _split(whole, samples)]
        self._optimiser = build_optimiser(self._objective.weights(), settings)

    def __call__(self) -> None:
        """Add up the gradients of all passes and take the step."""
        self._objective.zero_grad()
        for forward in self._forwards():
            forward().backward()
        self._optimiser.step()

    @property
    def kept(self) -> int:
        """Bytes that the largest pass keeps."""
        return max(map(kept_bytes, self._forwards()))

    def _forwards(self) -> list[Callable[[], torch.Tensor]]:
        silent = torch.zeros_like(self._objective.signals)
        return [lambda part=part: self._objective(part, silent) for part in self._passes]


def _split(whole: Pass, samples: int) -> list[Pass]:
    count = -(-len(whole.g) // samples)
    targets = [None] * count if whole.target is None else whole.target.tensor_split(count)
    return [
        replace(whole, g=g, target=target, share=1 / count)
        for g, target in zip(whole.g.tensor_split(count), targets, strict=True)
    ]


if __name__ == "__main__":
    main()
