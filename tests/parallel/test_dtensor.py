"""DTensors as values of a problem, in a gloo group of the ranks."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import mosaicdd as m
from mosaicdd.training.objective import rank_group

pytestmark = pytest.mark.ranks(1, 2, 3, 4)


@pytest.fixture(scope="module")
def mesh():
    """Open the group once: rank_group opens none for one rank."""
    from mpi4py import MPI

    if MPI.COMM_WORLD.size == 1:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        yield init_device_mesh("cpu", (1,))
        dist.destroy_process_group()
    else:
        with rank_group(MPI.COMM_WORLD):
            yield init_device_mesh("cpu", (MPI.COMM_WORLD.size,))


def test_values_of_a_problem_may_be_dtensors(mesh):
    from mpi4py import MPI

    a = np.exp(np.random.default_rng(0).standard_normal((97, 65)))
    tensor = distribute_tensor(torch.from_numpy(a), mesh, [Shard(0)])
    part, expected = (
        m.solve(m.Problem((96, 64), "diffusion", {"a": v, "f": 1.0}), ranks=MPI.COMM_WORLD).local
        for v in (tensor, a)
    )
    assert torch.is_tensor(part)
    np.testing.assert_array_equal(part.numpy(), expected)


def test_a_dtensor_of_another_shape_or_other_processes_is_refused(ranks, mesh):
    tensor = distribute_tensor(torch.ones(9, 9), mesh, [Shard(1)])
    with pytest.raises(ValueError, match=r"shape \(9, 9\), the grid has \(33, 65\) nodes"):
        m.Problem((32, 64), "diffusion", {"a": tensor})
    if ranks.size > 1:
        first = DeviceMesh("cpu", [0])
    if ranks.rank > 0:
        beside = DTensor.from_local(torch.ones(9, 9), first, [Replicate()], run_check=False)
        with pytest.raises(ValueError, match=r"over the processes \[0\], and this is none"):
            m.Problem((8, 8), "diffusion", {"a": beside})
