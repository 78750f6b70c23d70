"""Combinations of vectors and inner products by compiled code, against torch's in float64."""

import pytest
import torch

from mosaicdd.schwarz.multigrid import combinations
from mosaicdd.schwarz.multigrid.combinations import Combination, combining, dot

LENGTHS = [1, 15, 16, 17, 32, 1000]
FACTOR = 0.3


def vectors(length, *dtypes):
    """Return numbers at odd places."""
    generator = torch.Generator().manual_seed(length)
    return [torch.randn(length + 3, generator=generator, dtype=d)[3:] for d in dtypes]


def forms(length, dtype):
    """Return one combination of each form that conjugate gradients have."""
    p, q, z, r = vectors(length, *[dtype] * 4)
    x, b = vectors(length, *[torch.float64] * 2)
    return {
        "values": Combination(q.clone(), x, x),
        "direction": Combination(p, p, z, r.clone()),
        "step": Combination(q, r, r, r),
        "energy": Combination(q, by=z),
        "work": Combination(q, by=b),
    }


def true(each):
    """Return the result and the inner product, in float64."""
    ours = each.a.double() if each.base is None else each.base.double() + FACTOR * each.a.double()
    by = ours if each.by is each.out else each.by
    return ours, 0.0 if by is None else float(ours @ by.double())


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_combinations_are_those_in_float64(length, dtype, compiled, monkeypatch):
    if compiled:
        pytest.importorskip("llvmlite")
    else:
        monkeypatch.setattr(combinations, "_compiled", lambda kind: None)
    for name, each in forms(length, dtype).items():
        ours, product = true(each)
        eps = torch.finfo(dtype).eps
        assert combining([each])(FACTOR) == pytest.approx(product, abs=4 * eps * length), name
        if each.out is not None:
            rounding = 4 * torch.finfo(each.out.dtype).eps * float(ours.abs().max())
            assert torch.allclose(each.out.double(), ours, rtol=0, atol=rounding), name


@pytest.mark.parametrize("compiled", [True, False])
def test_inner_products_of_several_are_added_up(compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(combinations, "_compiled", lambda kind: None)
    a, b = (v.view(3, 11) for v in vectors(33, torch.float32, torch.float32))
    rows = [Combination(x, by=y) for x, y in zip(a, b, strict=True)]
    assert combining(rows)(0.0) == pytest.approx(dot(a, b), rel=1e-6)


def test_compiled_inner_products_lose_nothing_to_float32():
    pytest.importorskip("llvmlite")
    many = torch.full((2**20,), 0.1)
    assert dot(many, many) == pytest.approx(2**20 * float(many[0].double()) ** 2, rel=1e-10)
