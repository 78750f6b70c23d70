"""``train --dry-run``: memory per device for each level of sharding, and the lowest that fits."""

import json
import os
from dataclasses import asdict

import click
import torch

from mosaicdd.training.memory_plan import MemoryLevel

_PARTS = ("weights", "gradients", "optimiser", "activations", "samples", "total")
_MB = 2**20


def show_plan(levels: list[MemoryLevel], device: torch.device, ranks: int, as_json: bool) -> None:
    """Print the levels as a table, or as one JSON object.

    Parameters
    ----------
    ranks
        Number of ranks, which on processors share the memory of a machine.
    """
    memory = device_memory(device, ranks)
    fits = next((level.sharding for level in levels if level.total <= memory), None)
    if as_json:
        rows = [asdict(level) | {"total": level.total} for level in levels]
        figures = {"levels": rows, "device_memory": memory, "ranks": ranks, "fits": fits}
        click.echo(json.dumps(figures))
        return
    click.echo(f"{'MB per device':14}" + "".join(f"{part:>13}" for part in _PARTS))
    for level in levels:
        values = "".join(f"{getattr(level, part) / _MB:13.1f}" for part in _PARTS)
        click.echo(f"{level.sharding:14}{values}")
    advice = (
        f"lowest level that fits: --sharding {fits}"
        if fits
        else "none fits: lower --micro-batch, or use --recompute or more ranks"
    )
    click.echo(f"{ranks} rank(s), {memory / _MB:.0f} MB each; {advice}")


def device_memory(device: torch.device, ranks: int) -> int:
    """Return the bytes of a GPU, or a rank's part of the machine's memory."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // ranks
