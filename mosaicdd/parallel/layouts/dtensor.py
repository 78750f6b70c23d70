"""Hand an array to torch's DTensor, for programs that go on in torch.distributed."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import tensor as dtensor
from torch.distributed.device_mesh import init_device_mesh

from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Merge, Placement, Segment, is_cut
from mosaicdd.parallel.layouts.redistribution import redistribute
from mosaicdd.parallel.ranks import Ranks


@dataclass(frozen=True)
class Chunk:
    """The only shard that DTensor knows, that of ``torch.chunk``.

    All parts have ``ceil(length / parts)`` items but the last ones, which have fewer or none.
    """

    axis: int

    merge: ClassVar[Merge] = Merge.OWNER

    def split(self, length: int, parts: int) -> list[list[Segment]]:
        """Return one segment per coordinate, none where it is empty."""
        step = -(-length // parts)
        bounds = [(min(c * step, length), min((c + 1) * step, length)) for c in range(parts)]
        return [[Segment(a, b)] if a < b else [] for a, b in bounds]


def to_dtensor(array: np.ndarray, layout: Layout, ranks: Ranks) -> dtensor.DTensor:
    """Return a DTensor over the layout's mesh; called by all ranks.

    ``Replicate`` and ``PartialSum`` become DTensor's ``Replicate`` and ``Partial``; whatever cuts
    an axis becomes its ``Shard``, to whose sizes the array is redistributed. The mesh is one of
    CPUs, so the process group needs a backend for them (gloo).

    Raises
    ------
    RuntimeError
        If torch.distributed has no process group of these ranks, in their order.
    ValueError
        On all ranks, if the array of one does not fit the layout.
    """
    ranks.agree(lambda: _require_process_group(ranks))
    target = Layout(layout.shape, layout.mesh, tuple(map(_known_to_torch, layout.placements)))
    whole = torch.empty(target.shape, device="meta")
    return dtensor.DTensor.from_local(
        torch.from_numpy(redistribute(array, layout, target, ranks)),
        init_device_mesh("cpu", target.mesh),
        [_of_torch(placement) for placement in target.placements],
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )


def _known_to_torch(placement: Placement) -> Placement:
    return Chunk(placement.axis) if is_cut(placement) else placement


def _of_torch(placement: Placement) -> dtensor.Placement:
    if is_cut(placement):
        return dtensor.Shard(placement.axis)
    return dtensor.Replicate() if placement.merge is Merge.ANY else dtensor.Partial("sum")


def _require_process_group(ranks: Ranks) -> None:
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "a DTensor needs a process group of torch.distributed: open one first, for example by "
            "mosaicdd.training.rank_group"
        )
    if (dist.get_world_size(), dist.get_rank()) != (ranks.size, ranks.rank):
        raise RuntimeError(
            f"the process group calls this rank {dist.get_rank()} of {dist.get_world_size()}, the "
            f"communicator {ranks.rank} of {ranks.size}; open the group from the communicator"
        )
