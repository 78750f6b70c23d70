"""Calls of ``mosaicdd train`` for the benchmarks, alone or under mpiexec."""

from pathlib import Path

from ranks import mosaicdd

from mosaicdd.storage.metrics_file import read_metrics


def train(data: str, model: Path, ranks: int, *options: str) -> tuple[dict, list[dict]]:
    """Train a model; return what the command says, and its metrics."""
    said = mosaicdd(ranks, "train", data, "-o", str(model), *options)
    return said, read_metrics(f"{model}.metrics.jsonl")


def seconds_to(target: float, metrics: list[dict]) -> str:
    """Return when the validation MSE first was at a target."""
    reached = [row["seconds"] for row in metrics if row["validation_mse"] <= target]
    return f"{reached[0]:.1f}" if reached else "not reached"
