"""Optimisers against second implementations, written from their papers' formulas."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from mosaicdd import TrainingSettings
from mosaicdd.training.optimisers import Lamb, build_optimiser, learning_rate_factor
from mosaicdd.training.settings import OPTIMIZERS

LR = 0.01
STEPS = 5


def gradients(shape=(6, 4), seed=0):
    return np.random.default_rng(seed).standard_normal((STEPS, *shape))


def start(shape=(6, 4)):
    return np.random.default_rng(1).standard_normal(shape)


def trajectory(name, grads, **changes):
    """Return the weight after each step of the optimiser that the settings name."""
    weight = torch.nn.Parameter(torch.as_tensor(start(grads.shape[1:])))
    optimiser = build_optimiser([weight], TrainingSettings(optimizer=name, lr=LR, **changes))
    path = []
    for grad in grads:
        weight.grad = torch.as_tensor(grad.copy())
        optimiser.step()
        path.append(weight.detach().numpy().copy())
    return np.array(path)


def adam_steps(grads, betas, eps):
    """Yield Adam's update, without the learning rate, for each gradient."""
    mean = square = 0.0
    for t, g in enumerate(grads, start=1):
        mean = betas[0] * mean + (1 - betas[0]) * g
        square = betas[1] * square + (1 - betas[1]) * g**2
        yield mean / (1 - betas[0] ** t) / (np.sqrt(square / (1 - betas[1] ** t)) + eps)


def lamb_path(grads, adapt):
    w, path = start(grads.shape[1:]), []
    for update in adam_steps(grads, (0.9, 0.999), 1e-6):
        ratio = np.linalg.norm(w) / np.linalg.norm(update) if adapt else 1.0
        w = w - LR * ratio * update
        path.append(w)
    return np.array(path)


def test_adamw_is_adam_with_bias_correction():
    grads = gradients()
    w, path = start(), []
    for update in adam_steps(grads, (0.9, 0.999), 1e-8):
        w = w - LR * update
        path.append(w)
    np.testing.assert_allclose(trajectory("adamw", grads), path, rtol=1e-12)


@pytest.mark.parametrize("adapt", [False, True])
def test_lamb_scales_by_the_norms_only_when_it_always_adapts(adapt):
    grads = gradients()
    result = trajectory("lamb", grads, always_adapt=adapt)
    np.testing.assert_allclose(result, lamb_path(grads, adapt), rtol=1e-12)


def test_lamb_leaves_out_the_ratio_where_a_norm_is_zero():
    weight = torch.nn.Parameter(torch.zeros(3))
    optimiser = Lamb([weight], lr=LR, always_adapt=True)
    weight.grad = torch.ones(3)
    optimiser.step()
    np.testing.assert_allclose(weight.detach().numpy(), -LR, rtol=1e-5)  # Adam's first step


def test_muon_orthogonalises_the_momentum_of_a_matrix_and_leaves_a_vector_to_adamw():
    grads = gradients()
    w, momentum, path = start(), 0.0, []
    for g in grads:
        momentum = 0.95 * momentum + 0.05 * g
        update = 0.95 * momentum + 0.05 * g  # Nesterov
        x = update / np.linalg.norm(update)
        x = x.T  # of two axes the shorter one first
        for _ in range(5):  # Newton-Schulz with the coefficients of Jordan (2024)
            a = x @ x.T
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        w = w - LR * 0.2 * np.sqrt(6) * x.T
        path.append(w)
    # torch iterates in bfloat16: 8 bits, in five products of matrices.
    moved = np.abs(np.array(path) - start()).max()
    np.testing.assert_allclose(trajectory("muon", grads), path, atol=0.05 * moved)
    vectors = gradients((5,))
    np.testing.assert_array_equal(trajectory("muon", vectors), trajectory("adamw", vectors))


def test_soap_is_adam_in_the_eigenbasis_of_the_gradients_factors():
    """After the first step, which only collects the factors, and before the basis is renewed."""
    grads = gradients((4, 4))
    left, right = grads[0] @ grads[0].T, grads[0].T @ grads[0]
    q_left, q_right = (np.linalg.eigh(f)[1] for f in (left, right))
    w, mean, square, path = start((4, 4)), 0.0, 0.0, []
    for t, g in enumerate(grads[1:], start=1):
        mean = 0.95 * mean + 0.05 * g
        turned = q_left.T @ g @ q_right
        square = 0.95 * square + 0.05 * turned**2
        update = q_left.T @ mean @ q_right / (np.sqrt(square) + 1e-8)
        factor = np.sqrt(1 - 0.95**t) / (1 - 0.95**t)
        w = w - LR * factor * q_left @ update @ q_right.T
        path.append(w)
    result = trajectory("soap", grads)
    np.testing.assert_array_equal(result[0], start((4, 4)))
    np.testing.assert_allclose(result[1:], path, rtol=1e-5, atol=1e-7)


def test_the_learning_rate_rises_then_falls_as_a_power():
    for exponent in (1.0, 2.0):
        factors = [learning_rate_factor(p, 0.2, exponent) for p in (0.1, 0.2, 0.6, 1.0)]
        np.testing.assert_allclose(factors, [0.5, 1.0, 0.5**exponent, 0.0], atol=1e-12)
    assert learning_rate_factor(0.0, 0.2) > 0  # the first step must move


def test_rate_and_warmup_grow_with_the_batch_as_in_the_paper():
    settings = TrainingSettings(lr=1e-3, warmup=0.001, batch_size=1024, base_batch_size=256)
    assert settings.scaled_lr == pytest.approx(2e-3)
    assert settings.scaled_warmup == pytest.approx(0.004)
    alone = TrainingSettings(lr=1e-3, warmup=0.001, batch_size=1024)
    assert (alone.scaled_lr, alone.scaled_warmup) == (1e-3, 0.001)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_that_is_put_back_continues_bitwise(name):
    settings = TrainingSettings(optimizer=name, lr=LR)
    grads = [torch.as_tensor(g) for g in np.concatenate([gradients(), gradients(seed=2)])]
    weight = torch.nn.Parameter(torch.as_tensor(start()))
    optimiser = build_optimiser([weight], settings)
    for grad in grads[:5]:
        weight.grad = grad.clone()
        optimiser.step()
    copy = torch.nn.Parameter(weight.detach().clone())
    other = build_optimiser([copy], settings)
    other.load_state_dict(deepcopy(optimiser.state_dict()))
    for grad in grads[5:]:
        for w, o in ((weight, optimiser), (copy, other)):
            w.grad = grad.clone()
            o.step()
    assert torch.equal(copy, weight)
