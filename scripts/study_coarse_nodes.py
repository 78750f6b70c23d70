"""What networks of operators could reach at most: subdomains with the best operators there are.

Usage: study_coarse_nodes.py [CELLS [SPE10.npz]] (by default 512). In each subdomain the operator that a
network learns to say (`mosaicdd.training.operator_samples`) is computed: by 54 solutions in the 48 x 48 cells around. All
else is the engine of `diffusion-operator`, with its one correction. Media and problems are those of
`bench_field_networks`; errors as there. Writes ``benchmarks/field_coarse_nodes.md``.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from bench_field_networks import MEDIA, problem_of
from media import NESS, TARBERT, spe10
from tables import publish, table

import mosaicdd as m
from mosaicdd.local_solvers.models.trained_model import OperatorModel
from mosaicdd.local_solvers.networks.operator import (
    REACTION,
    ROUGHNESS,
    SEEN,
    OperatorNetwork,
    OperatorSettings,
)
from mosaicdd.local_solvers.subdomain_graphs import CELLS
from mosaicdd.local_solvers.upscaling import RATIO
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.training.operator_samples import samples_in

_SEED = 12345
_PART = 100  # subdomains that are solved in at once
_NETWORKS = ("averaged", "diffusion", "diffusion-operator")


class PerfectNetwork(OperatorNetwork):
    """Says of every subdomain what its best operator has beside the lifting."""

    def encode(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return it, ``(1, rows, columns, I (P + moments))``, in media without a reaction."""
        side, half = RATIO * (CELLS + 2 * SEEN), RATIO * CELLS // 2
        x, y = (
            fields[name].unfold(1, side + (name == "x"), half).unfold(2, side + (name == "y"), half)
            for name in ("x", "y")
        )
        right, up = (logs.flatten(0, 2).double().exp() for logs in (x, y))
        none = torch.zeros(1, side + 1, side + 1)
        parts = zip(right.split(_PART), up.split(_PART), strict=True)
        lacking = [samples_in(*part, none.expand(len(part[0]), -1, -1)).lacking for part in parts]
        return torch.cat(lacking).flatten(1).view(*x.shape[:3], -1)

    def correction(self, z: torch.Tensor) -> torch.Tensor:
        """Return what `encode` has said."""
        return z.unflatten(-1, self.uniform.shape)


def perfect() -> OperatorModel:
    """Return the model without a training, for any medium."""
    ranges = {ROUGHNESS: [0.0, np.inf], REACTION: [0.0, 0.0]}
    card = ModelCard("diffusion", 32, 0.5, "perfect", {}, None, [-1.0, 1.0], ranges=ranges)
    return OperatorModel("perfect", PerfectNetwork(OperatorSettings(modes=1)), card)


def main(cells: int, path: Path | None) -> None:
    """Solve, print and write the table."""
    torch.set_num_threads(1)
    nodes = cells + 1
    media = {name: make(nodes, np.random.default_rng(_SEED)) for name, make in MEDIA.items()}
    if path is not None:
        for name, formation in (("Tarbert", TARBERT), ("Ness", NESS)):
            media[f"SPE10, {name}"] = spe10((nodes, nodes), path, formation)
    rows = []
    for name, a in media.items():
        for what in ("sides", "source"):
            rows.append([name, what, *_errors(problem_of(a, what))])
            print(rows[-1], flush=True)
    note = (
        "By `python scripts/study_coarse_nodes.py`; its head says what is measured: *best operators* is what "
        "`diffusion-operator` would reach if it had learned all there is."
    )
    title = f"The best operators between nodes four cells apart, {cells} x {cells}"
    header = ["medium", "", *_NETWORKS, "best operators"]
    publish("field_coarse_nodes", title, f"{note}\n\n{table(header, rows)}")


def _errors(problem: m.Problem) -> list[str]:
    """Return the relative errors of the networks, and of the best operators."""
    truth = m.solve(problem, settings=m.SolveSettings(rtol=1e-9)).field
    errors = []
    for solver in (*_NETWORKS, perfect()):
        try:
            wrong = m.solve(problem, solver).field - truth
        except ValueError:  # outside of the network's range
            errors.append("refused")
            continue
        errors.append(f"{np.sqrt(np.square(wrong).mean() / np.square(truth).mean()):.1e}")
    return errors


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(int((arguments or ["512"])[0]), Path(arguments[1]) if len(arguments) > 1 else None)
