"""What the PDE loss costs: time and memory of a step without it, by Taylor and by autograd.

Beside them the paper's Table 3: memory of a step on a V100 for 5, 320 and 640 subdomains.
"""

import torch
from step_cost import seconds_per_call
from tables import publish, table

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.lifting import unit_points
from mosaicdd.local_solvers.networks.registry import build_network
from mosaicdd.training.elliptic_operator import EllipticOperator
from mosaicdd.training.kept_memory import kept_bytes
from mosaicdd.training.losses import data_loss, pde_residual

# Network, subdomains, and points per step: data points (a linear network learns from all 961) and
# collocation points.
_CASES = [*(("sdnet", b, 64) for b in (5, 32, 128, 320)), ("linear", 256, 32), ("linear", 256, 64)]
_CASES += [("deeponet", 256, 64), ("mlp", 128, 64), ("sdnet-concat", 32, 64)]
_LAPLACE = EllipticOperator((1.0, 1.0))
_PAPER = [
    ["5", "0.05 GB", "0.503 GB", "10.1"],
    ["320", "2.77 GB", "15.11 GB", "5.5"],
    ["640", "5.54 GB", "out of memory", ""],
]


def main() -> None:
    """Measure all cases, print the tables and write them to ``benchmarks/``."""
    torch.set_num_threads(1)
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
        "One step: forward and backward pass at some data points (`linear`: at all 961) and at as many "
        "collocation points, float32, processor time. *Times*: a step with PDE loss over one without, by "
        "Taylor propagation and by double backward, the paper's way. *Kept*: bytes that a forward "
        f"pass keeps for its backward pass.\n\n{ours}\n\nThe paper's Table 3, one V100:\n\n{paper}"
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

    def data() -> torch.Tensor:
        return data_loss(network, g, points, target)

    def residual(way: str) -> torch.Tensor:
        return pde_residual(network, _LAPLACE, g, triangle, way).square().mean()

    passes = [data, lambda: residual("taylor"), lambda: residual("autograd")]
    alone, taylor, autograd = (
        seconds_per_call(lambda p=forward: (network.zero_grad(), p().backward()))
        for forward in passes
    )
    kept = [f"{kept_bytes(forward) / 2**20:.1f} MB" for forward in passes]
    times = [alone, alone + taylor, alone + autograd]
    ratios = [f"{seconds / alone:.2f}" for seconds in times[1:]]
    return [name, str(batch), str(count), *(f"{1e3 * t:.1f} ms" for t in times), *ratios, *kept]


if __name__ == "__main__":
    main()
