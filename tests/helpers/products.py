"""Products that show maps: a differentiable solve's linearised one and its adjoint, <w, L f> and <L' w, f>; a cycle's, <x, C y>."""

import torch


def products(solve, f, along, w):
    """Return both, for a source, a direction of it and weights at the nodes; the map by the double backward."""
    f, along, w = map(torch.from_numpy, (f, along, w))
    u = solve(f=f.requires_grad_())
    weights = torch.zeros_like(u).requires_grad_()
    (back,) = torch.autograd.grad(u, f, weights, create_graph=True)
    (ahead,) = torch.autograd.grad(back, weights, along)
    (by,) = torch.autograd.grad(u, f, w)
    return (ahead * w).sum().item(), (by * along).sum().item()


def require_symmetric_and_positive(cycle, places):
    """Check what a multigrid cycle makes of right-hand sides at some places of its values."""
    columns = torch.randn(len(places), 8, generator=torch.Generator().manual_seed(0))
    images = torch.zeros_like(columns)
    for i in range(columns.shape[1]):
        cycle.right_hand_side.view(-1)[places] = columns[:, i]
        cycle()
        images[:, i] = cycle.values.view(-1)[places]
    products = columns.double().T @ images.double()
    assert torch.allclose(products, products.T, rtol=0, atol=1e-5 * products.abs().max().item())
    assert torch.linalg.eigvalsh((products + products.T) / 2).min() > 0
