"""Products that show the maps of a differentiable solve: the linearised one and its adjoint, <w, L f> and <L' w, f>."""

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
