"""Vectors with others added to them, and inner products, by compiled code and by torch, against those in float64."""

import pytest
import torch

from mosaicdd.solvers.multigrid import vector_operations as compiled
from mosaicdd.solvers.multigrid import vector_operations as vectors
from mosaicdd.solvers.multigrid.vector_operations import adding, dot, stepping, turning

LENGTHS = [1, 15, 16, 17, 32, 1000]
FACTOR = 0.3


@pytest.fixture(params=[True, False], ids=["compiled", "torch"])
def by(request, monkeypatch):
    """Let loops be compiled, or not."""
    if request.param:
        pytest.importorskip("numba")
    else:
        for module in (compiled, vectors):
            monkeypatch.setattr(module, "kernels", lambda: None)


def several(length, *dtypes):
    """Return vectors of two classes."""
    generator = torch.Generator().manual_seed(length)
    return [torch.randn(2, length, generator=generator, dtype=d) for d in dtypes]


def near(ours, exact, kind):
    """Say whether numbers are so to their rounding, of a product and a sum."""
    rounding = 4 * torch.finfo(kind).eps * float(exact.abs().max())
    return torch.allclose(ours.double(), exact, rtol=0, atol=rounding)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.usefixtures("by")
def test_vectors_are_those_in_float64(length, dtype):
    p, q, z, r = several(length, *[dtype] * 4)
    (x,) = several(length, torch.float64)
    eps = 8 * torch.finfo(dtype).eps * length
    added, turned, stepped = (a.double() + FACTOR * b.double() for a, b in ((x, p), (z, p), (r, q)))
    adding(x, p)(FACTOR)
    assert near(x, added, torch.float64)
    assert turning(p, z, r)(FACTOR) == pytest.approx(float((turned * r).sum()), abs=eps)
    assert near(p, turned, dtype)
    assert stepping(r, q)(-FACTOR) == pytest.approx(float((r.double()).square().sum()), abs=eps)
    assert near(r, stepped - 2 * FACTOR * q.double(), dtype)
    for other in (q, x):
        assert dot(q, other) == pytest.approx(float((q.double() * other).sum()), abs=eps)


@pytest.mark.usefixtures("by")
def test_a_stretch_is_all_that_changes():
    x, a, z = several(10, *[torch.float32] * 3)
    before = x.clone()
    adding(x, a)(2.0, slice(3, 7))
    turning(a, z, z)(2.0, slice(3, 7))
    changed = x != before
    assert changed[:, 3:7].all()
    assert changed.sum() == 8
    assert torch.equal(a[:, 7:], several(10, *[torch.float32] * 3)[1][:, 7:])


def test_compiled_inner_products_lose_nothing_to_float32():
    pytest.importorskip("numba")
    many = torch.full((2**20,), 0.1)
    assert dot(many, many) == pytest.approx(2**20 * float(many[0].double()) ** 2, rel=1e-10)
