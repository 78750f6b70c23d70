"""The data loss and the PDE loss (Algorithm 1 of the paper), each with its own forward pass.

Both act on the unit remainder of the lifting: its exact solutions have no PDE residual, so the
residual of the remainder is that of the whole. Points are in ``[-1, 1]``, order (y, x).
"""

from collections.abc import Callable

import torch

from mosaicdd.problems.equations import Equation


def data_loss(
    network: torch.nn.Module, g: torch.Tensor, points: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    """Mean squared error of the values ``(B, Q)`` at points ``(Q, 2)``."""
    return torch.nn.functional.mse_loss(network(g, points), target)


def pde_loss(
    network: torch.nn.Module, equation: Equation, g: torch.Tensor, points: torch.Tensor
) -> torch.Tensor:
    """Mean squared PDE residual at collocation points ``(Q, 2)``."""
    u_yy, u_xx = second_derivatives(network, g, points)
    return equation.operator(u_yy, u_xx).square().mean()


def second_derivatives(
    network: torch.nn.Module, g: torch.Tensor, points: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the second derivatives along y and x, each ``(B, Q)``.

    A network linear in ``g`` is differentiated once for the whole batch: its operator, in forward
    mode. Any other as in the paper, by two backward passes through the network.
    """
    if network.linear:
        rows = _forward_mode(lambda p: network.prepare(p, merge=False), points)
        return g @ rows[0].T, g @ rows[1].T
    return _double_backward(network, g, points)


def _forward_mode(
    function: Callable[[torch.Tensor], torch.Tensor], points: torch.Tensor
) -> list[torch.Tensor]:
    """Differentiate twice along each axis by nested Jacobian-vector products."""
    second = []
    for axis in range(points.shape[-1]):
        direction = torch.zeros_like(points)
        direction[..., axis] = 1.0

        def first(p: torch.Tensor, along: torch.Tensor = direction) -> torch.Tensor:
            return torch.func.jvp(function, (p,), (along,))[1]

        second.append(torch.func.jvp(first, (points,), (direction,))[1])
    return second


def _double_backward(
    network: torch.nn.Module, g: torch.Tensor, points: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Differentiate twice by reverse mode, with each subdomain's own copy of the points."""
    copies = points.expand(len(g), *points.shape[-2:]).clone().requires_grad_()  # (B, Q, 2)
    values = network(g, copies)
    (gradient,) = torch.autograd.grad(values.sum(), copies, create_graph=True)
    second = [
        torch.autograd.grad(gradient[..., axis].sum(), copies, create_graph=True)[0][..., axis]
        for axis in range(points.shape[-1])
    ]
    return second[0], second[1]
