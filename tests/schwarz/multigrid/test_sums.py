"""Sums of products by compiled code, against torch's."""

import sys

import pytest
import torch

from mosaicdd.schwarz.multigrid import aggregates, llvm, sums
from mosaicdd.schwarz.multigrid.sums import Kind, Left, Sum, planned

LENGTHS = [1, 7, 31, 32, 33, 64, 1000]


@pytest.fixture
def compiled():
    """Leave tests out where there is no compiled code."""
    pytest.importorskip("llvmlite")
    assert sums.compiled(Kind(*[torch.float32] * 3)) is not None


def several(length, dtype=torch.float32, seed=0):
    """Return sums of every form, of numbers at odd places, each into a result of its own or an earlier one."""
    generator = torch.Generator().manual_seed(seed)

    def new():
        return torch.randn(length + 3, generator=generator, dtype=dtype)[3:]

    def products(count):
        return [(new(), new()) for _ in range(count)]

    first, second = new(), new()
    return [
        Sum(first, new(), products(4), new()),
        Sum(second, None, [(new(), first), *products(2)]),
        Sum(second, second, [(first, new())]),
        Sum(new(), new(), [], new()),
        Sum(new(), new(), []),
        Sum(new(), None, products(8), own=new()),
        Sum(new(), second, products(1), new(), own=first),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_compiled_sums_are_those_of_torch(length, dtype, compiled, monkeypatch):
    by_code, by_torch = several(length, dtype), several(length, dtype)
    planned(by_code)()
    monkeypatch.setattr(sums, "compiled", lambda kind: None)
    planned(by_torch)()
    for code, torchs in zip(by_code, by_torch, strict=True):
        # Of at most eight products each is rounded twice, where it is not rounded once.
        terms = torchs.out.abs()
        for a, b in torchs.products:
            terms = terms + a.abs() * (b.abs() + (0 if torchs.own is None else torchs.own.abs()))
        terms = terms * (1 if torchs.scale is None else 1 + torchs.scale.abs())
        rounding = 16 * torch.finfo(dtype).eps * terms
        assert bool(((code.out - torchs.out).abs() <= rounding).all())


@pytest.mark.parametrize("factor", [torch.float32, torch.float64])
@pytest.mark.parametrize("out", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_what_is_left_by_code_is_that_of_torch(length, factor, out, compiled):
    generator = torch.Generator().manual_seed(1)
    base, own, *beside = (
        torch.randn(length, generator=generator, dtype=torch.float64) for _ in range(6)
    )
    around = [(torch.rand(length, generator=generator).to(factor), b) for b in beside]
    left, expected = torch.zeros(length + 1, dtype=out), 0.75 * base
    for a, b in around:
        expected -= a.double() * (own - b)
    planned([Left(left[:-1], base, around, own, 0.75)])(1 / 3)
    rounding = 8 * torch.finfo(out).eps
    assert torch.allclose(left[:-1].double(), expected / 3, rtol=0, atol=10 * rounding)
    assert not left[-1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("by_code", [True, False])
def test_sums_by_labels(by_code, dtype, monkeypatch, request):
    if by_code:
        request.getfixturevalue("compiled")
    else:
        for name in ("_adding_up", "_adding_constants"):
            monkeypatch.setattr(aggregates, name, lambda *of, **how: None)
    labels = torch.tensor([2, 2, 0, 2, 1], dtype=torch.int32)
    left, right = torch.tensor([[1.0, 2, 3, 4, 5], [0.5, 0, 1, 0, 0]], dtype=dtype)
    total = torch.full((3,), 10.0, dtype=torch.float64)
    aggregates.add_up(labels, left, None, total)
    assert total.tolist() == [13, 15, 17]
    aggregates.add_up(labels, left, right, total)
    assert total.tolist() == [15, 20, 23.5]
    aggregates.add_constants(labels, torch.tensor([1.0, 2, 3], dtype=dtype), left)
    assert left.tolist() == [4, 5, 4, 7, 7]


def test_a_stretch_ends_where_it_ends(compiled):
    room = torch.zeros(50)
    planned([Sum(room[3:42], None, [(torch.ones(39), torch.ones(39))])])()
    assert torch.equal(room, torch.cat([torch.zeros(3), torch.ones(39), torch.zeros(8)]))


def test_other_numbers_than_compiled_code_is_for_are_left_to_torch():
    mixed = torch.zeros(40, dtype=torch.float64)
    planned([Sum(mixed, None, [(torch.ones(40), torch.ones(40))])])()
    assert torch.equal(mixed, torch.ones(40, dtype=torch.float64))
    spread = torch.zeros(80)
    planned([Sum(spread[::2], torch.ones(40), [(torch.ones(40), torch.ones(1).expand(40))])])()
    assert torch.equal(spread.view(40, 2)[:, 0], torch.full((40,), 2.0))
    assert torch.equal(spread.view(40, 2)[:, 1], torch.zeros(40))


def test_without_llvmlite_there_is_no_compiled_code(monkeypatch):
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    assert llvm.function.__wrapped__("sums", "", "p") is None
