"""The split first layer against concatenated inputs (Fig. 5 of the paper).

Throughput and memory over the number of points per subdomain, for inference and for training; the
two networks have the same weights and give the same values.
"""

import torch
from step_cost import seconds_per_call
from tables import publish, table

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.registry import build_network
from mosaicdd.training.memory import kept_bytes

_SUBDOMAINS = 8
_POINTS = (64, 256, 1024, 4096)
_LIMIT = 2**30  # bytes: a concatenated input beyond it is not tried


def main() -> None:
    """Measure both networks, print the table and write it to ``benchmarks/``."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    concatenated = build_network("sdnet-concat", {}, Subdomain())
    split = build_network("sdnet", {"symmetric": False}, Subdomain())
    split.load_state_dict(concatenated.state_dict())
    rows = [_row(split, concatenated, points) for points in _POINTS]
    header = ["points per subdomain", "inference: split", "concatenated", "gain"]
    header += ["training: split", "concatenated", "gain", "kept: split", "concatenated"]
    text = (
        f"{_SUBDOMAINS} subdomains, values per second (millions); *kept*: memory that a forward pass "
        "keeps for its backward pass. The embedded perimeter has 1024 values, the paper's has 128: "
        f"it is what concatenation copies for each point.\n\n{table(header, rows)}\n\nThe paper (V100): "
        "concatenation runs out of memory at 10,000 points, the split layer reaches 50,000."
    )
    publish("split", "The split layer against concatenation", text)


def _row(split: torch.nn.Module, concatenated: torch.nn.Module, points: int) -> list[str]:
    g, where = torch.randn(_SUBDOMAINS, 128), 2 * torch.rand(points, 2) - 1
    cells: list[list[float]] = []
    for network in (split, concatenated):

        def forward(network: torch.nn.Module = network) -> torch.Tensor:
            return network(g, where).square().mean()

        size = _SUBDOMAINS * points * 1090 * 4 * (network is concatenated)
        if size > _LIMIT:
            cells.append([float("nan")] * 3)
            continue
        with torch.no_grad():
            inference = seconds_per_call(forward, 1.0)
        training = seconds_per_call(lambda f=forward: f().backward(), 1.0)
        values = _SUBDOMAINS * points / 1e6
        cells.append([values / inference, values / training, kept_bytes(forward) / 2**20])
    (si, st, sm), (ci, ct, cm) = cells
    speeds = [
        f"{si:.2f}",
        f"{ci:.2f}",
        f"{si / ci:.1f}",
        f"{st:.2f}",
        f"{ct:.2f}",
        f"{st / ct:.1f}",
    ]
    return [str(points), *speeds, f"{sm:.0f} MB", f"{cm:.0f} MB"]


if __name__ == "__main__":
    main()
