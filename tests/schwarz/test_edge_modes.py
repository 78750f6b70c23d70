"""Modes of lattice edges against eigenvectors of the one-dimensional stiffness."""

import numpy as np
import pytest
import torch

from mosaicdd.schwarz.condensed.edge_modes import cut_lines, edge_modes

S, EDGES = 16, 40


def edges(contrast):
    """Return conductances and diagonals of edges whose conductances are scattered so far."""
    rng = np.random.default_rng(0)
    k = torch.from_numpy(contrast ** rng.uniform(-0.5, 0.5, (1, EDGES, S)))
    across = torch.from_numpy(contrast ** rng.uniform(-0.5, 0.5, (1, EDGES, S - 1)))
    return k, k[..., 1:] + k[..., :-1] + 2 * across


def tried(contrast, count=3):
    k, d = edges(contrast)
    counts = torch.full((1, EDGES), count)
    return k[0], d[0], edge_modes(k, d, None, counts, 3)[0]


@pytest.mark.parametrize("contrast", [1.0, 1e3, 1e9])
def test_modes_are_orthogonal_against_the_diagonal(contrast):
    _, d, modes = tried(contrast)
    weighted = modes * d.sqrt()[..., None]
    weighted /= weighted.norm(dim=1, keepdim=True)
    products = weighted.mT @ weighted
    # What is taken off a mode is up to the contrast times what is left.
    assert abs(products - torch.eye(3)).max() < 1e-14 * S * max(contrast, 10.0)
    assert torch.equal(modes.abs().amax(1), torch.ones(EDGES, 3, dtype=torch.float64))


@pytest.mark.parametrize("contrast", [1.0, 1e3, 1e6])
def test_the_first_is_nearly_the_lowest_eigenvector(contrast):
    k, d, modes = tried(contrast)
    inner = -torch.diag_embed(k[:, 1:-1], 1)
    stiffness = torch.diag_embed(k[:, 1:] + k[:, :-1]) + inner + inner.mT
    scale = d.rsqrt()
    lowest = torch.linalg.eigvalsh(scale[:, :, None] * stiffness * scale[:, None])[:, 0]
    first = modes[:, :, :1]
    energy = (first.mT @ stiffness @ first).flatten()
    quotient = energy / (d[:, :, None] * first.square()).sum((1, 2))
    # After three iterations of a second eigenvalue 1/q as high q^5 - q^6 of its share is left, 0.067 at most.
    assert (quotient / lowest).max() < 1.1
    assert (quotient / lowest).min() > 1 - 1e-6


def test_those_that_do_not_count_are_zero():
    modes = tried(1e3, count=2)[2]
    assert not modes[..., 2].any()
    assert modes[..., :2].any()


def test_edges_with_few_active_nodes_have_finite_modes_on_these_alone():
    k, d = edges(1e3)
    active = torch.zeros(1, EDGES, S - 1, dtype=torch.bool)
    active[..., 4:6] = True
    k[..., :4] = k[..., 7:] = 0.0
    k[..., 4] = k[..., 6] = 0.0  # and nothing is tied to them
    d = torch.where(active, d, 0.0)
    cut = cut_lines(k, torch.zeros_like(d), active)
    modes = edge_modes(k, d, cut, torch.full((1, EDGES), 2), 3)
    assert modes.isfinite().all()
    assert modes[active][..., :2].any()
    assert not modes[~active].any()
