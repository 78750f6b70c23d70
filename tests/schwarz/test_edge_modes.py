"""Modes of lattice edges against eigenvectors of the one-dimensional stiffness."""

import numpy as np
import pytest
import torch

from mosaicdd.schwarz.condensed.edge_modes import cut_lines, edge_modes

S, EDGES = 16, 40


def edges(contrast, *, links=False):
    """Return conductances and diagonals of edges whose conductances are scattered so far.

    With ``links`` some conductances are so large, and all others 1.
    """
    rng = np.random.default_rng(0)
    if links:
        k = torch.from_numpy(np.where(rng.random((1, EDGES, S)) < 0.15, contrast, 1.0))
        return k, k[..., 1:] + k[..., :-1] + 2 * (k[..., 1:] * k[..., :-1]).sqrt()
    k = torch.from_numpy(contrast ** rng.uniform(-0.5, 0.5, (1, EDGES, S)))
    across = torch.from_numpy(contrast ** rng.uniform(-0.5, 0.5, (1, EDGES, S - 1)))
    return k, k[..., 1:] + k[..., :-1] + 2 * across


def tried(contrast, count=3, most=None, **which):
    k, d = edges(contrast, **which)
    counts = torch.full((1, EDGES), count)
    return k[0], d[0], edge_modes(k, d, None, counts, most or count)[0]


@pytest.mark.parametrize("count", [3, 6])
@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize("contrast", [1.0, 1e3, 1e9, 1e13])
def test_modes_are_orthogonal_against_the_diagonal(contrast, links, count):
    _, d, modes = tried(contrast, count, links=links)
    weighted = modes * d.sqrt()[..., None]
    weighted /= weighted.norm(dim=1, keepdim=True)
    products = weighted.mT @ weighted
    assert abs(products - torch.eye(count)).max() < 1e-14 * S
    assert torch.equal(modes.abs().amax(1), torch.ones(EDGES, count, dtype=torch.float64))


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
    modes = tried(1e3, count=2, most=3)[2]
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
