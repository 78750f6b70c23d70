"""The data loss and the PDE loss (Algorithm 1 of the paper), each with its own forward pass.

Both act on the unit remainder of the lifting: its exact solutions have no PDE residual, so the
residual of the remainder is that of the whole. Points are in ``[-1, 1]``, order (y, x).

Shape letters: ``B`` subdomains, ``P`` perimeter nodes, ``Q`` points.
"""

import torch

from mosaicdd.local_solvers.networks.taylor import Jet
from mosaicdd.training.elliptic_operator import EllipticOperator


def data_loss(
    network: torch.nn.Module, g: torch.Tensor, points: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    """Mean squared error of the values ``(B, Q)`` at points ``(Q, 2)``."""
    return torch.nn.functional.mse_loss(network(g, points), target)


def pde_residual(
    network: torch.nn.Module,
    operator: EllipticOperator,
    g: torch.Tensor,
    points: torch.Tensor,
    laplacian: str = "taylor",
) -> torch.Tensor:
    """Return the residual ``D[u]``, ``(B, Q)``, at collocation points ``(Q, 2)``.

    Parameters
    ----------
    laplacian
        ``"taylor"``: derivatives carried through the layers, where the network can; ``"autograd"``:
        by two backward passes, as in the paper.
    """
    if laplacian == "taylor" and hasattr(network, "jet"):
        return operator.apply(network.jet(g, points, operator.second, operator.second_only))
    return operator.apply(_double_backward(network, operator, g, points))


def _double_backward(
    network: torch.nn.Module, operator: EllipticOperator, g: torch.Tensor, points: torch.Tensor
) -> Jet:
    """Differentiate twice by reverse mode, with each subdomain's own copy of the points."""
    copies = points.expand(len(g), *points.shape[-2:]).clone().requires_grad_()  # (B, Q, 2)
    values = network(g, copies)
    (gradient,) = torch.autograd.grad(values.sum(), copies, create_graph=True)
    second = sum(
        weight * torch.autograd.grad(gradient[..., k].sum(), copies, create_graph=True)[0][..., k]
        for k, weight in enumerate(operator.second)
    )
    return Jet(values, gradient.movedim(-1, 0), second)
