"""Gradients in jax against its own checks; skipped where it is not installed."""

import numpy as np
import pytest
import torch

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


def test_a_march_has_the_gradients_that_torch_has():
    problem = m.Problem((8, 8), "heat", None, {"left": m.Robin(2.0), "right": m.Dirichlet("y*t")})
    march = m.differentiable(
        problem, ("initial", "a", "f", "left"), dt=0.05, steps=10, every=4, settings=TIGHT
    )
    solve = m.in_jax(march)
    named = {"initial": drawn(9, 9), "a": drawn(8, 8), "f": drawn(11, 9, 9), "left": drawn(9)}
    fields = solve(**named)
    assert fields.shape == (4, 9, 9)  # of steps 0, 4, 8 and 10
    weights = drawn(*fields.shape)

    def weighted(arrays):
        return (weights * solve(**arrays) ** 2).sum()

    tensors = {name: torch.tensor(values, requires_grad=True) for name, values in named.items()}
    (torch.from_numpy(weights) * march(**tensors) ** 2).sum().backward()
    by, compiled = jax.grad(weighted)(named), jax.jit(jax.grad(weighted))(named)
    for name, tensor in tensors.items():
        np.testing.assert_allclose(by[name], tensor.grad, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(compiled[name], tensor.grad, rtol=1e-9, atol=1e-12)
    test_util.check_grads(
        lambda *arrays: solve(**dict(zip(named, arrays, strict=True)))[-1, ::4, ::4],
        [*named.values()],
        order=1,
        modes=["rev"],
        atol=1e-5,
        rtol=1e-5,
    )


def test_several_calls_are_differentiated_each_at_its_own_values():
    problem = m.Problem((8, 8), "p-laplace", {"f": 1.0, "eps": 0.3})
    solve = m.in_jax(m.differentiable(problem, "a", settings=TIGHT))
    first, last = drawn(9, 9), 3.0 + drawn(9, 9)

    def alone(a):
        return (solve(a=a) ** 2).sum()

    both = jax.grad(lambda *every: sum(map(alone, every)), argnums=(0, 1))(first, last)
    for values, by in zip((first, last), both, strict=True):
        np.testing.assert_allclose(by, jax.grad(alone)(values), rtol=1e-6)
    batch = jax.grad(lambda every: (solve(a=every) ** 2).sum())(np.stack([first, last]))
    np.testing.assert_allclose(batch, np.stack(both), rtol=1e-6)
    many = [a + drawn(9, 9) for a in np.linspace(0, 2, 10)]  # more than what is kept of calls
    assert all(map(np.any, jax.grad(lambda every: sum(map(alone, every)))(many)))


def test_what_does_not_fit_is_said():
    solve = m.in_jax(m.differentiable(m.Problem((8, 8), "diffusion"), "a"))
    with pytest.raises(ValueError, match=r"shape \(3, 3\).*\(8, 8\) or \(9, 9\)"):
        solve(a=drawn(3, 3))
    with pytest.raises(ValueError, match="not one of wrt"):
        solve(f=drawn(9, 9))
    march = m.in_jax(m.differentiable(m.Problem((8, 8), "heat"), "a", dt=0.1, steps=2))
    with pytest.raises(ValueError, match=r"shape \(3, 3\)"):
        march(a=drawn(3, 3))


@pytest.mark.parametrize("compiled", [False, True])
def test_solves_of_one_loss_may_name_different_parameters(compiled):
    torch_solve = m.differentiable(m.Problem((8, 8), "diffusion", {"f": 1.0}), ("a", "f"))
    solve, a, f = m.in_jax(torch_solve), drawn(9, 9), 2 * drawn(9, 9)
    losses = (
        lambda a, f: solve(a=a).sum() + solve(f=f).sum(),
        lambda a, f: solve(f=f).sum() + solve(a=a, f=f).sum(),
        lambda a, f: solve(a=a, f=f).sum() + (solve(a=a) * solve(f=f)).sum(),
    )
    for loss in losses:
        jax.vjp(loss, a, f)  # recorded, and never used
        gradient = jax.grad(loss, (0, 1))
        by = (jax.jit(gradient) if compiled else gradient)(a, f)
        along = drawn(9, 9)
        for number, slope in enumerate(by):
            ahead, back = (
                loss(*(v + s * 1e-4 * along * (k == number) for k, v in enumerate((a, f))))
                for s in (1, -1)
            )
            # Off by the square of the step, and by what solves leave, 1e-10 over it.
            differences = float(ahead - back) / 2e-4
            assert float((slope * along).sum()) == pytest.approx(differences, rel=1e-5)


def test_a_batch_by_vmap_is_its_members():
    solve = m.in_jax(m.differentiable(m.Problem((8, 8), "diffusion", {"f": 1.0}), "a"))
    every = 1 + np.stack([drawn(9, 9), drawn(9, 9) ** 2])

    def loss(a):
        return (solve(a=a) ** 2).sum()

    for of in (lambda a: solve(a=a), jax.grad(loss)):
        for values, a in zip(jax.vmap(of)(every), every, strict=True):
            np.testing.assert_array_equal(values, of(a))


def test_what_is_refused_is_one_line():
    solve = m.in_jax(m.differentiable(m.Problem((8, 8), "diffusion", {"f": 1.0}), "a"))
    a = drawn(9, 9)

    def loss(a):
        return (solve(a=a) ** 2).sum()

    with pytest.raises(ValueError, match="the field a must be positive"):
        jax.grad(loss)(-a)
    with pytest.raises(m.Unsupported, match=r"differentiated backwards: take jax.grad"):
        jax.jvp(loss, (a,), (a,))
    with pytest.raises(m.Unsupported, match=r"differentiated backwards: take jax.grad"):
        jax.hessian(loss)(a)
    for twice in (jax.grad(lambda a: jax.grad(loss)(a).sum()), jax.jacrev(jax.grad(loss))):
        for of in (twice, jax.jit(twice)):
            with pytest.raises(m.Unsupported, match="take second ones by torch"):
                of(a)
    # Of what is compiled jax makes an error of its own, whose last line it is.
    with pytest.raises(jax.errors.JaxRuntimeError) as refused:
        jax.block_until_ready(jax.jit(loss)(-a))
    assert str(refused.value).splitlines()[-1].startswith("ValueError: the field a must be pos")
    assert "solve_function" not in str(refused.value)
