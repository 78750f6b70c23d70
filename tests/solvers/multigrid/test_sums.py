"""Sums of products by compiled code, against torch's."""

import pytest
import torch

from mosaicdd.solvers.multigrid import aggregates
from mosaicdd.solvers.multigrid import vector_operations as compiled
from mosaicdd.solvers.multigrid import vector_operations as sums
from mosaicdd.solvers.multigrid.vector_operations import Image, Residual, Sum, planned

LENGTHS = [1, 7, 63, 64, 65, 128, 1000, 1100]


@pytest.fixture
def code():
    """Return compiled loops; leave tests out where there are none."""
    pytest.importorskip("numba")
    loops = compiled.kernels()
    assert loops is not None
    return loops


def without_code(monkeypatch):
    """Let torch's calls take the place of compiled loops."""
    for module in (compiled, sums, aggregates):
        monkeypatch.setattr(module, "kernels", lambda: None)


def several(length, dtype=torch.float32, seed=0):
    """Return sums and images of every form, of numbers at odd places, each into a result of its own or an earlier one."""
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
        Sum(second, second, products(26), new()),
        Sum(new(), new(), [], new()),
        Sum(new(), new(), []),
        Sum(new(), None, []),
        Image(new(), new(), products(8)),
        Image(new(), first, products(1), new()),
        Image(new(), new(), []),
    ]


def terms_of(row):
    """Return the sum of the sizes of all that a row adds up."""
    terms = row.out.abs()
    for a, b in row.products:
        own = row.own.abs() if isinstance(row, Image) else 0
        terms = terms + a.abs() * (b.abs() + own)
    if isinstance(row, Image):
        return terms + (0 if row.excess is None else (row.excess * row.own).abs())
    terms = terms + (0 if row.base is None else row.base.abs())
    return terms * (1 if row.scale is None else 1 + row.scale.abs())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.usefixtures("code")
def test_compiled_sums_are_those_of_torch(length, dtype, monkeypatch):
    by_code, by_torch = several(length, dtype), several(length, dtype)
    product = planned(by_code)()
    without_code(monkeypatch)
    expected = planned(by_torch)()
    eps = torch.finfo(dtype).eps
    of_images = 0.0
    for ours, torchs in zip(by_code, by_torch, strict=True):
        # Each product and each sum is rounded once or twice, of results that come from earlier ones, too.
        rounding = (6 + 2 * len(torchs.products)) * eps * terms_of(torchs)
        assert bool(((ours.out - torchs.out).abs() <= 4 * rounding).all())
        if isinstance(torchs, Image):
            of_images += float((torchs.own.abs() * terms_of(torchs)).sum())
    assert product == pytest.approx(expected, abs=32 * eps * of_images)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("with_excess", [False, True])
@pytest.mark.usefixtures("code")
def test_residuals_by_code_are_those_of_torch(length, kind, with_excess, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    base, own, excess, *beside = (
        torch.randn(length, generator=generator, dtype=torch.float64) for _ in range(7)
    )
    excess = excess if with_excess else None
    # What the finer part adds is far below the rounding of float32, and counts.
    around = []
    for number, b in enumerate(beside):
        a = torch.rand(length, generator=generator).to(kind)
        around.append((a, 1e-9 * a if number % 2 else None, b))
    expected = 0.75 * (base - (0 if excess is None else excess * own))
    for a, finer, b in around:
        k = a.double() + (0 if finer is None else finer.double())
        expected -= k * (own - b)
    left = torch.zeros(length + 1, dtype=kind)
    row = Residual(left[:-1], base, own, around, excess)
    rounding = 1e-14 + torch.finfo(kind).eps
    for _ in ("compiled", "torch"):
        planned([row])(0.75, 1 / 3)
        assert torch.allclose(left[:-1].double(), expected / 3, rtol=0, atol=10 * rounding)
        assert not left[-1]
        left.zero_()
        without_code(monkeypatch)


@pytest.mark.usefixtures("code")
def test_a_result_may_be_what_it_is_made_of():
    """LevelBox are read before they are written, so nothing has to be promised to a compiler."""
    x = torch.arange(1.0, 201)
    planned([Sum(x, x, [(x, x)], x)])()
    assert torch.equal(
        x, (torch.arange(1.0, 201) + torch.arange(1.0, 201) ** 2) * torch.arange(1.0, 201)
    )
