"""The split first layer against concatenated inputs (Fig. 5 of the paper).

Throughput and memory over the number of points per subdomain, for inference and for training, and for
embedded perimeters of several widths, which the paper does not give; the two networks have the same
weights and give the same values. The fastest of some trials, by the thread's processor time.

Usage: bench_split.py [TRIALS]
"""

import functools
import sys
import time
from collections.abc import Callable

import torch
from tables import publish, table, write_csv

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.registry import build_network
from mosaicdd.training.memory import kept_bytes

_SUBDOMAINS = 8
_POINTS = (64, 256, 1024, 4096)
_CHANNELS = (1, 2, 8)  # of the convolutions: 128, 256 and 1024 embedded values


def main(trials: int) -> None:
    """Measure both networks, print the table and write it to ``benchmarks/``."""
    torch.set_num_threads(1)
    rows = []
    for channels in _CHANNELS:
        torch.manual_seed(0)
        concatenated = build_network("sdnet-concat", {"channels": channels}, Subdomain())
        split = build_network("sdnet", {"channels": channels, "symmetric": False}, Subdomain())
        split.load_state_dict(concatenated.state_dict())
        for points in _POINTS:
            costs = _costs((split, concatenated), points, trials)
            rows.append([str(128 * channels), str(points), *_cells(*costs)])
    header = ["embedded values", "points per subdomain"]
    header += ["inference: split", "concatenated", "gain"]
    header += ["training: split", "concatenated", "gain", "kept, MB: split", "concatenated"]
    kinds = ("split", "concatenated", "gain")
    short = [f"{what} {kind}" for what in ("inference", "training") for kind in kinds]
    write_csv("split", ["embedded", "points", *short, "kept split", "kept concatenated"], rows)
    text = (
        f"{_SUBDOMAINS} subdomains, values per second (millions), the fastest of {trials} trials; *kept*: "
        "memory that a forward pass keeps for its backward pass. The paper does not give the width of "
        f"its embedding: it is what concatenation copies for each point.\n\n{table(header, rows)}\n\n"
        "The paper (V100): concatenation runs out of memory at 10,000 points, the split layer reaches "
        "50,000."
    )
    publish("split", "The split layer against concatenation", text)


def _costs(networks: tuple, points: int, trials: int) -> list[tuple[float, float, float]]:
    """Return of each network the millions of values per second, without and with backward pass, and MB."""
    g, where = torch.randn(_SUBDOMAINS, 128), 2 * torch.rand(points, 2) - 1
    forwards = [functools.partial(_loss, network, g, where) for network in networks]
    with torch.no_grad():
        inference = _seconds(forwards, trials)
    training = _seconds([functools.partial(_gradient, forward) for forward in forwards], trials)
    kept = [kept_bytes(forward) / 2**20 for forward in forwards]
    values = _SUBDOMAINS * points / 1e6
    return [(values / a, values / b, c) for a, b, c in zip(inference, training, kept, strict=True)]


def _loss(network: torch.nn.Module, g: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    return network(g, where).square().mean()


def _gradient(forward: Callable[[], torch.Tensor]) -> None:
    forward().backward()


def _seconds(calls: list, trials: int) -> list[float]:
    """Return the seconds of calls that take turns, the fastest of some trials."""
    spent = [[] for _ in calls]
    for _ in range(1 + trials):
        for call, times in zip(calls, spent, strict=True):
            start = time.thread_time()
            call()
            times.append(time.thread_time() - start)
    return [min(times[1:]) for times in spent]


def _cells(split: tuple[float, ...], concatenated: tuple[float, ...]) -> list[str]:
    (si, st, sm), (ci, ct, cm) = split, concatenated
    speeds = [
        f"{si:.2f}",
        f"{ci:.2f}",
        f"{si / ci:.1f}",
        f"{st:.2f}",
        f"{ct:.2f}",
        f"{st / ct:.1f}",
    ]
    return [*speeds, f"{sm:.0f}", f"{cm:.0f}"]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
