"""The split first layer against concatenated inputs (Fig. 5 of the paper).

Throughput and memory over the number of points per subdomain, for inference and for training, and for
embedded perimeters of several widths, which the paper does not give; the two networks have the same
weights and give the same values. The fastest of some trials, by the thread's processor time. Then the
most points of a training pass that fit a gigabyte, each tried in a process that cannot have more.
"""

import functools
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from common import publish, table, write_csv

from mosaicdd.networks.registry import build_network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.training.memory import kept_bytes

_SUBDOMAINS = 8
_POINTS = (64, 256, 1024, 4096)
_CHANNELS = (1, 2, 8)  # of the convolutions: 128, 256 and 1024 embedded values
_LIMIT = 2**30  # bytes that a process may take for its passes
_STEP = 1.1  # between numbers of points that are tried

SMALL = {"trials": 1}


def main(trials: int = 30) -> None:
    """Measure both networks, print the table and write it to ``benchmarks/``."""
    rows, ends = [], []
    for channels in _CHANNELS:
        networks = _networks(channels)
        for points in _POINTS:
            costs = _costs(networks, points, trials)
            rows.append([str(128 * channels), str(points), *_cells(*costs)])
        most = [_most_points(channels, number) for number in range(len(networks))]
        ends.append([str(128 * channels), *map(str, most), f"{most[0] / most[1]:.1f}"])
    header = ["embedded values", "points per subdomain"]
    header += ["inference: split", "concatenated", "gain"]
    header += ["training: split", "concatenated", "gain", "kept, MB: split", "concatenated"]
    kinds = ("split", "concatenated", "gain")
    short = [f"{what} {kind}" for what in ("inference", "training") for kind in kinds]
    write_csv("split", ["embedded", "points", *short, "kept split", "kept concatenated"], rows)
    write_csv("split_memory", ["embedded", *kinds], ends)
    text = (
        f"{_SUBDOMAINS} subdomains, values per second (millions), the fastest of {trials} trials; *kept*: "
        "memory that a forward pass keeps for its backward pass. The paper does not give the width of "
        f"its embedding: it is what concatenation copies for each point.\n\n{table(header, rows)}\n\n"
        f"The most points in a training pass that take no more than {_LIMIT / 2**30:g} GiB, to a tenth:\n\n"
        f"{table(['embedded values', *kinds], ends)}\n\n"
        "The paper (V100): concatenation runs out of memory at 10,000 points, the split layer reaches "
        "50,000."
    )
    publish("split", "The split layer against concatenation", text)


def _networks(channels: int) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Return the split network and the concatenating one, of the same weights."""
    torch.manual_seed(0)
    concatenated = build_network("sdnet-concat", {"channels": channels}, Subdomain())
    split = build_network("sdnet", {"channels": channels, "symmetric": False}, Subdomain())
    split.load_state_dict(concatenated.state_dict())
    return split, concatenated


def _most_points(channels: int, number: int) -> int:
    """Return the most points, of all subdomains together, that a training pass has memory for."""
    points = 8000.0
    while _fits(channels, number, round(2 * points)):
        points *= 2
    while _fits(channels, number, round(_STEP * points)):
        points *= _STEP
    return _SUBDOMAINS * round(points)


def _fits(channels: int, number: int, points: int) -> bool:
    process = multiprocessing.get_context("fork").Process(
        target=_train_in_little, args=(channels, number, points)
    )
    process.start()
    process.join()
    return process.exitcode == 0


def _train_in_little(channels: int, number: int, points: int) -> None:
    """Run a training pass; end with 1 where the memory ends."""
    g, where = torch.randn(_SUBDOMAINS, 128), 2 * torch.rand(points, 2) - 1
    network = _networks(channels)[number]
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + _LIMIT,) * 2)
    try:
        _gradient(functools.partial(_loss, network, g, where))
    except RuntimeError:  # what torch raises where there is no memory
        sys.exit(1)


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
