"""Gradients beside a velocity that is one number, on grids of any size: they are central differences."""

import numpy as np
import pytest
import torch
from central_differences import central_difference

import mosaicdd as m

STEP = 1e-4  # of values about 1
SETTINGS = m.SolveSettings(rtol=1e-13)
PLANE = m.Domain((18, 20), 1 / 20)
SIDES = {"left": m.Robin(2.0, 1.0), "right": m.Dirichlet("1 + y"), "top": m.Neumann(0.3)}
AROUND = {"bottom": m.Periodic(), "top": m.Periodic(), "left": m.Dirichlet(1.0)}
DISK = m.Domain.from_distance("hypot(x - 0.5, y - 0.45) - 0.4", (18, 20), 1 / 20)


def cells():
    mask = np.ones((18, 20), bool)
    mask[9:, 13:] = False
    return m.Domain.from_mask(mask, 1 / 20, per_cell=True)


CASES = {
    "values": (PLANE, m.Dirichlet(0.0)),
    "sides": (PLANE, SIDES),
    "periodic": (PLANE, AROUND | {"right": m.Neumann(0.1)}),
    "disk": (DISK, m.Dirichlet(0.5)),
    "cells": (cells(), {"left": m.Dirichlet("y"), "outline": m.Robin(1.0, 0.5)}),
}


def drawn(shape, seed):
    return torch.from_numpy(np.array(np.random.default_rng((seed, *shape)).uniform(0.5, 2, shape)))


def require_differences(solve, **values):
    along = {name: drawn(tuple(v.shape), 1) for name, v in values.items()}
    w = torch.where(solve(**values).isfinite(), drawn(tuple(solve(**values).shape), 2), 0.0)

    def functional(t):
        u = torch.nan_to_num(solve(**{name: v + t * along[name] for name, v in values.items()}))
        return w * u**2

    here = {name: v.clone().requires_grad_() for name, v in values.items()}
    (w * torch.nan_to_num(solve(**here)) ** 2).sum().backward()
    slope = sum((here[name].grad * along[name]).sum().item() for name in values)
    assert slope == central_difference(functional, STEP)


@pytest.mark.parametrize("case", CASES)
def test_in_a_solve(case):
    domain, sides = CASES[case]
    problem = m.Problem(domain, "advection-diffusion", {"bx": 8.0, "by": -3.0, "f": 1.0}, sides)
    solve = m.differentiable(problem, ("f", "bx"), settings=SETTINGS)
    require_differences(solve, f=drawn((19, 21), 0), bx=torch.tensor(8.0, dtype=torch.float64))


@pytest.mark.parametrize("case", ["sides", "disk"])
def test_in_a_march(case):
    domain, sides = CASES[case]
    problem = m.Problem(domain, "advection-diffusion", {"bx": 8.0, "f": 1.0}, sides)
    march = m.differentiable(problem, ("initial", "bx"), dt=0.05, steps=2, settings=SETTINGS)
    bx = torch.tensor(8.0, dtype=torch.float64)
    require_differences(march, initial=drawn((19, 21), 0), bx=bx)
