"""What one training pass keeps, with and without the PDE loss, after Table 3 of the paper.

The paper's network (``data/paper.toml``) at 64 points per subdomain, its data points and as many
collocation points, for 5, 320 and 640 subdomains in one pass: bytes of all tensors that the pass keeps
for its backward pass, by double backward (the paper's way), by second-order Taylor propagation, and by
that with hidden layers computed again.
"""

import tomllib
from pathlib import Path

import torch
from tables import write_csv

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.registry import build_network
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.training.memory import kept_bytes
from mosaicdd.training.objective import Objective
from mosaicdd.training.samples import Pass
from mosaicdd.training.settings import TrainingSettings

_RECIPE = Path(__file__).parent.parent / "data" / "paper.toml"
_PAPER = {5: ("0.05", "0.503"), 320: ("2.77", "15.11"), 640: ("5.54", "out of memory")}
_POINTS = 64
_WAYS = {
    "autograd": ("autograd", False),
    "taylor": ("taylor", False),
    "recomputed": ("taylor", True),
}


def main() -> None:
    """Measure all passes and write them to ``benchmarks/paper/memory.csv``."""
    rows = []
    for subdomains, paper in _PAPER.items():
        data = _gigabytes(subdomains, "taylor", False, with_pde=False)
        ways = [data + _gigabytes(subdomains, *way, with_pde=True) for way in _WAYS.values()]
        rows.append([subdomains, *paper, *(f"{size:.4f}" for size in (data, *ways))])
        print(*rows[-1], flush=True)
    header = ["subdomains", "paper: no PDE loss, GB", "paper: with PDE loss, GB", "no PDE loss, GB"]
    write_csv("memory", [*header, *(f"{way}, GB" for way in _WAYS)], rows)


def _gigabytes(subdomains: int, way: str, recompute: bool, *, with_pde: bool) -> float:
    """Return what a pass of the data loss keeps, or one of the PDE loss."""
    torch.manual_seed(0)
    subdomain = Subdomain()
    network = build_network("sdnet", tomllib.loads(_RECIPE.read_text())["settings"], subdomain)
    network.recompute = recompute
    objective = Objective(
        network, LAPLACE.at(), subdomain, TrainingSettings(pde_weight=1.0, laplacian=way)
    )
    g, points = torch.randn(subdomains, 4 * subdomain.cells), 2 * torch.rand(_POINTS, 2) - 1
    target = None if with_pde else torch.randn(subdomains, _POINTS)
    silent = torch.zeros_like(objective.signals)
    return kept_bytes(lambda: objective(Pass(g, 1.0, points, target), silent)) / 1e9


if __name__ == "__main__":
    main()
