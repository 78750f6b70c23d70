"""What torch traces or transforms: a solve is run as it is when a function is compiled, and refused by torch.func."""

import pytest
import torch
from torch.autograd import forward_ad

import mosaicdd as m

ONES = torch.ones(17, 17, dtype=torch.float64)
HELD = {side: m.Dirichlet(0.0) for side in ("left", "right", "bottom", "top")}


STEADY = m.differentiable(m.Problem((16, 16), "diffusion", {"a": 1.0, "f": 1.0}, HELD), "a")
MARCH = m.differentiable(m.Problem((16, 16), "heat", {"f": 1.0}, HELD), "f", dt=0.1, steps=2)


def steady(a):
    return STEADY(a=a).square().sum()


def marched(f):
    return MARCH(f=f).square().sum()


@pytest.mark.parametrize("function", [steady, marched])
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, torch.func.vmap])
def test_a_transform_of_torch_func_is_refused_in_one_line(function, transform):
    with pytest.raises(m.Unsupported, match=r"^torch\.func transforms no solves: take [^\n]*$"):
        transform(function)(ONES[None] if transform is torch.func.vmap else ONES)


@pytest.mark.parametrize("function", [steady, marched])
def test_tangents_are_refused_in_one_line(function):
    with forward_ad.dual_level(), pytest.raises(m.Unsupported, match=r"^solves are [^\n]*$"):
        function(forward_ad.make_dual(ONES, ONES))


def test_what_the_refusal_names_instead_is_the_same_derivative():
    value, along = torch.autograd.functional.jvp(steady, ONES, ONES)
    assert along.item() == pytest.approx(-2 * value.item(), rel=1e-6)  # of u / a squared


@pytest.mark.nightly
@pytest.mark.parametrize("function", [steady, marched])
def test_a_compiled_function_is_the_function(function):
    of, again = (ONES.clone().requires_grad_() for _ in range(2))
    function(of).backward()
    torch.compile(function, backend="eager")(again).backward()
    torch.testing.assert_close(again.grad, of.grad, rtol=1e-6, atol=0)
