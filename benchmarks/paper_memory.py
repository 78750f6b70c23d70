"""The memory of one training pass, with and without the PDE loss, after Table 3 of the paper.

The paper's network (``data/paper.toml``) at 64 points per subdomain, its data points and as many
collocation points, for 5, 320 and 640 subdomains in one pass. The data loss alone; and then the PDE loss,
too, by double backward (the paper's way), by second-order Taylor propagation, and by that with hidden
layers computed again. *Peak*: the memory of a process in its forward and backward passes, above what it
had before; each case in a process of its own.
"""

import multiprocessing
import resource
import tomllib
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from common import ROOT, resident_bytes, write_csv

from mosaicdd.networks.registry import build_network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.training.losses import pass_loss, residual_of
from mosaicdd.training.samples import Pass
from mosaicdd.training.settings import TrainingSettings

_RECIPE = ROOT / "data" / "paper.toml"
_PAPER = {5: ("0.05", "0.503"), 320: ("2.77", "15.11"), 640: ("5.54", "out of memory")}
_POINTS = 64
_WAYS = {
    "no PDE loss": None,
    "autograd": ("autograd", False),
    "taylor": ("taylor", False),
    "recomputed": ("taylor", True),
}


def main() -> None:
    """Measure all passes and write them to ``benchmarks/paper/memory.csv``."""
    rows = []
    for subdomains, paper in _PAPER.items():
        peaks = [_in_own_process(subdomains, way) for way in _WAYS.values()]
        rows.append([subdomains, *paper, *(f"{peak / 1e9:.4f}" for peak in peaks)])
        print(*rows[-1], flush=True)
    header = ["subdomains", "paper: no PDE loss, GB", "paper: with PDE loss, GB"]
    write_csv("memory", [*header, *(f"{way}, GB" for way in _WAYS)], rows)


def _in_own_process(subdomains: int, way: tuple[str, bool] | None) -> int:
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_send_peak, args=(sending, subdomains, way))
    process.start()
    sending.close()
    peak = receiving.recv()
    process.join()
    return peak


def _send_peak(sending: Connection, subdomains: int, way: tuple[str, bool] | None) -> None:
    _train(2, way)  # loads and allocates what every pass needs
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    before = resident_bytes()
    _train(subdomains, way)
    sending.send(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def _train(subdomains: int, way: tuple[str, bool] | None) -> None:
    """Run the passes of a step over so many subdomains, forwards and backwards."""
    torch.manual_seed(0)
    laplacian, recompute = way or ("taylor", False)
    subdomain = Subdomain()
    network = build_network("sdnet", tomllib.loads(_RECIPE.read_text())["settings"], subdomain)
    network.recompute = recompute
    settings = TrainingSettings(pde_weight=1.0 if way else 0.0, laplacian=laplacian)
    loss = pass_loss(network, settings, residual_of(network, LAPLACE.at(), subdomain, settings))
    g = torch.randn(subdomains, 4 * subdomain.cells)
    points, others = (2 * torch.rand(_POINTS, 2) - 1 for _ in range(2))
    loss(Pass(g, 1.0, points, torch.randn(subdomains, _POINTS))).backward()
    if way:
        loss(Pass(g, 1.0, others)).backward()
