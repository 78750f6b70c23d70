"""Answers do not depend on the type and the place that a program has chosen for torch's new tensors."""

import numpy as np
import pytest
import torch

import mosaicdd as m
from mosaicdd.networks.subdomain import Subdomain

DATA = m.Dirichlet("sin(3*x)*exp(y)")
STEP = {"left": DATA, "right": m.Neumann(1.0)}
PLANE = (48, 48)


@pytest.fixture(params=["bfloat16", "float64", "meta"])
def chosen(request):
    """Return what chooses another default; all is as it was in the end."""

    def choose():
        if request.param == "meta":
            torch.set_default_device("meta")
        else:
            torch.set_default_dtype(getattr(torch, request.param))

    yield choose
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


def network(name, pde="laplace", **fields):
    return m.solve(m.Problem((128, 128), pde, fields, DATA), name).field


def adjoint():
    solution = m.solve(m.Problem(PLANE, "diffusion", {"a": "1 + x", "f": 1.0}, DATA))
    return m.adjoint(solution, np.ones(solution.field.shape))["a"]


def differentiated():
    solve = m.differentiable(m.Problem(PLANE, "p-laplace", {"f": 1.0, "eps": 0.3}, DATA), "a")
    a = torch.ones(49, 49, dtype=torch.float64, device="cpu", requires_grad=True)
    solve(a=a).sum().backward()
    return a.grad.numpy()


def flow():
    solution = m.solve(m.Problem(PLANE, "p-laplace", {"f": 1.0}, STEP))
    return [solution.flow("right"), solution.balance().relative]


ANSWERS = {
    "laplace": lambda: network("laplace"),
    "sdnet": lambda: network("laplace-sdnet"),
    "screened": lambda: network("screened-poisson", "screened-poisson", c=3.0, f=1.0),
    "exact": lambda: network("exact"),
    "medium": lambda: m.solve(m.Problem(PLANE, "diffusion", {"a": "1 + x"}, DATA)).field,
    "march": lambda: m.march(m.Problem(PLANE, "heat", {"f": 1.0}), 0.0, dt=0.1, steps=2).field,
    "effective": lambda: m.effective(1 + np.indices((12, 12)).sum(axis=0) % 2).tensor,
    "adjoint": adjoint,
    "differentiated": differentiated,
    "flow": flow,
}


def test_answers_are_the_same_bits(chosen):
    expected = {name: answer() for name, answer in ANSWERS.items()}
    chosen()
    for name, answer in ANSWERS.items():
        for mine, theirs in zip(answer(), expected[name], strict=True):
            np.testing.assert_array_equal(mine, theirs, err_msg=name)


def test_so_does_a_training(chosen, tmp_path):
    data = tmp_path / "data.h5"
    drawn = m.GenerationSettings(subdomain=Subdomain(8), samples=40, windows=4)
    m.generate(data, drawn)

    def errors(name):
        how = {"width": 8, "depth": 1, "features": 4}
        settings = m.TrainingSettings(epochs=1, batch_size=16)
        result = m.train(data, tmp_path / name, settings, network="sdnet", network_settings=how)
        return result.best.errors

    expected = errors("one.h5")
    chosen()
    assert errors("two.h5") == expected
