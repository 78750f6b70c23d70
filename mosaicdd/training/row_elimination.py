"""Solutions in many small squares at once, each a medium of its own, by elimination row by row.

Shape letters: ``B`` squares of ``m`` cells a side, ``n`` problems in each.
"""

import torch


def solve_squares(
    right: torch.Tensor,
    up: torch.Tensor,
    reaction: torch.Tensor,
    edge: torch.Tensor,
    f: torch.Tensor,
) -> torch.Tensor:
    """Return the solutions at all nodes, ``(B, m + 1, m + 1, n)``.

    Parameters
    ----------
    right, up, reaction
        Conductances ``(B, m + 1, m)`` and ``(B, m, m + 1)``, and reactions ``(B, m + 1, m + 1)``.
    edge, f
        Values on the edge and sources inside, ``(m + 1, m + 1, n)`` each; all else does not count.
    """
    u = edge.repeat(len(right), 1, 1, 1)
    u[:, 1:-1, 1:-1] = f[1:-1, 1:-1]
    b = u[:, 1:-1, 1:-1]  # right-hand sides, then solutions
    b[:, 0] += up[:, 0, 1:-1, None] * edge[0, 1:-1]
    b[:, -1] += up[:, -1, 1:-1, None] * edge[-1, 1:-1]
    b[:, :, 0] += right[:, 1:-1, 0, None] * edge[1:-1, 0]
    b[:, :, -1] += right[:, 1:-1, -1, None] * edge[1:-1, -1]
    diagonal = right[:, 1:-1, :-1] + right[:, 1:-1, 1:] + up[:, :-1, 1:-1] + up[:, 1:, 1:-1]
    diagonal = diagonal + reaction[:, 1:-1, 1:-1]
    beside, between = right[:, 1:-1, 1:-1], up[:, 1:-1, 1:-1, None]
    inverses: list[torch.Tensor] = []
    for i in range(b.shape[1]):
        row = torch.diag_embed(diagonal[:, i])
        row -= torch.diag_embed(beside[:, i], 1) + torch.diag_embed(beside[:, i], -1)
        if i:
            below = between[:, i - 1]
            row -= below * inverses[-1] * below.mT
            b[:, i] += below * (inverses[-1] @ b[:, i - 1])
        inverses.append(torch.cholesky_inverse(torch.linalg.cholesky(row)))
    for i in reversed(range(b.shape[1])):
        if i + 1 < b.shape[1]:
            b[:, i] += between[:, i] * b[:, i + 1]
        b[:, i] = inverses[i] @ b[:, i]
    return u
