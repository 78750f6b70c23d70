"""Arrays as DTensors, in a gloo group of the ranks."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import Replicate as Copies

import mosaicdd as m
from mosaicdd.parallel.layouts.dtensor import to_dtensor
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Halo, Merge, On, PartialSum, Replicate, Shard
from mosaicdd.training.rank_group import rank_group

pytestmark = pytest.mark.ranks(1, 2, 3, 4)


@pytest.fixture(scope="module")
def process_group():
    """Open the group once: rank_group opens none for one rank."""
    from mpi4py import MPI

    if MPI.COMM_WORLD.size == 1:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        yield
        dist.destroy_process_group()
    else:
        with rank_group(MPI.COMM_WORLD):
            yield


def layouts(ranks, all_dims):
    """List layouts of (7, 5): on 4 ranks torch's shards of 7 are 2, 2, 2, 1, of 5 2, 2, 1, 0."""
    shape, size = (7, 5), ranks.size
    uneven = (7 - (size > 1), *([0] * (size - 2)), *([1] * (size > 1)))
    one = [
        Shard(0),
        Shard(1),
        Shard(0, uneven),
        Halo(0, 2),
        On(size - 1),
        Replicate(),
        PartialSum(),
    ]
    two = [
        (Shard(0), Shard(1)),
        (Halo(0, 1), Halo(1, 1)),
        (Shard(1), Shard(1)),
        (Replicate(), Shard(0)),
        (Shard(1), PartialSum()),
    ]
    return [Layout(shape, (size,), (placement,)) for placement in one] + [
        Layout(shape, dims, placements) for dims in all_dims for placements in two
    ]


def local(layout, whole, rank):
    """Return a rank's array of whole numbers; of a sum, every rank has a share of each value."""
    shares = layout.spread(Merge.SUM)
    parts = [layout.mesh[axis] for axis in shares]
    number = layout.coordinates(rank)[shares[0]] if shares else 0
    term = 3.0 * number
    if shares and number == 0:
        term = -3.0 * (parts[0] * (parts[0] - 1) // 2)
    return layout.cut(whole * (number == 0) + term, rank)


def test_the_full_tensor_equals_the_array(ranks, all_dims, process_group):
    whole = np.random.default_rng(0).integers(-99, 99, (7, 5)).astype(float)
    for layout in layouts(ranks, all_dims):
        tensor = to_dtensor(local(layout, whole, ranks.rank), layout, ranks)
        assert tensor.shape == whole.shape
        assert torch.equal(tensor.full_tensor(), torch.from_numpy(whole)), str(layout)


def test_torch_can_go_on_with_it(ranks, process_group):
    whole = np.random.default_rng(0).standard_normal((7, 5))
    layout = Layout(whole.shape, (ranks.size,), (Halo(0, 1),))
    tensor = to_dtensor(layout.cut(whole, ranks.rank), layout, ranks)
    product = (tensor.T @ tensor).full_tensor()
    # Sums of 7 products below 10 in another order: 7 roundings of partial sums below 70.
    np.testing.assert_allclose(
        product.numpy(), whole.T @ whole, rtol=0, atol=7 * 70 * np.finfo(float).eps
    )


def test_without_a_process_group_of_these_ranks_it_is_refused(ranks, monkeypatch, process_group):
    layout = Layout((4,), (ranks.size,), (Shard(0),))
    mine = np.zeros(layout.local_shape(ranks.rank))
    monkeypatch.setattr(dist, "get_world_size", lambda: ranks.size + 1)
    with pytest.raises(RuntimeError, match=f"of {ranks.size + 1}, the communicator"):
        to_dtensor(mine, layout, ranks)
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    with pytest.raises(RuntimeError, match="open one first"):
        to_dtensor(mine, layout, ranks)


def test_values_of_a_problem_may_be_dtensors(ranks, process_group):
    from mpi4py import MPI

    nodes = 97, 65
    a = np.exp(np.random.default_rng(0).standard_normal(nodes))
    layout = Layout(nodes, (ranks.size,), (Shard(0),))
    tensor = to_dtensor(layout.cut(a, ranks.rank), layout, ranks)
    part, expected = (
        m.solve(m.Problem((96, 64), "diffusion", {"a": v, "f": 1.0}), ranks=MPI.COMM_WORLD).local
        for v in (tensor, a)
    )
    assert torch.is_tensor(part)
    np.testing.assert_array_equal(part.numpy(), expected)


def test_a_dtensor_of_another_shape_or_other_processes_is_refused(ranks, process_group):
    layout = Layout((9, 9), (ranks.size,), (Shard(1),))
    tensor = to_dtensor(layout.cut(np.ones((9, 9)), ranks.rank), layout, ranks)
    with pytest.raises(ValueError, match=r"shape \(9, 9\), the grid has \(33, 65\) nodes"):
        m.Problem((32, 64), "diffusion", {"a": tensor})
    if ranks.size > 1:
        mesh = DeviceMesh("cpu", [0])
    if ranks.rank > 0:
        beside = DTensor.from_local(torch.ones(9, 9), mesh, [Copies()], run_check=False)
        with pytest.raises(ValueError, match=r"over the processes \[0\], and this is none"):
            m.Problem((8, 8), "diffusion", {"a": beside})
