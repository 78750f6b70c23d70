"""Gradients in jax against its own checks; skipped where it is not installed."""

import numpy as np
import pytest

import mosaicdd as m

jax = pytest.importorskip("jax")
test_util = pytest.importorskip("jax.test_util")
TIGHT = m.SolveSettings(rtol=1e-12)


@pytest.fixture(autouse=True)
def in_float64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def drawn(*shape):
    return np.random.default_rng(shape).uniform(0.5, 2.0, shape)


def test_jax_finds_its_derivatives_right():
    mask = np.ones((8, 8), bool)
    mask[4:, 4:] = False
    domain = m.Domain.from_mask(mask, 0.25, per_cell=True)
    sides = {"left": m.Robin(2.0), "outline": m.Dirichlet(1.0)}
    problem = m.Problem(domain, "advection-diffusion", None, sides)
    names = ("a", "bx", "f", "left", "left.alpha", "outline")
    solve = m.in_jax(m.differentiable(problem, names, settings=TIGHT))
    arrays = [drawn(9, 9), drawn(9, 9), drawn(9, 9), drawn(9), drawn(), drawn()]

    def few(*values):
        return solve(**dict(zip(names, values, strict=True)))[1:5:2, ::2]

    test_util.check_grads(few, arrays, order=1, modes=["rev"], atol=1e-5, rtol=1e-5)
    gradient = jax.grad(lambda *values: (few(*values) ** 2).sum(), argnums=(0, 4))
    for values, compiled in zip(gradient(*arrays), jax.jit(gradient)(*arrays), strict=True):
        np.testing.assert_allclose(values, compiled, rtol=1e-9)


def test_what_does_not_fit_is_said():
    solve = m.in_jax(m.differentiable(m.Problem((8, 8), "diffusion"), "a"))
    with pytest.raises(ValueError, match=r"shape \(3, 3\).*\(8, 8\) or \(9, 9\)"):
        solve(a=drawn(3, 3))
    with pytest.raises(ValueError, match="not one of wrt"):
        solve(f=drawn(9, 9))
    march = m.differentiable(m.Problem((8, 8), "heat"), "a", dt=0.1, steps=2)
    with pytest.raises(m.Unsupported, match="in jax"):
        m.in_jax(march)
