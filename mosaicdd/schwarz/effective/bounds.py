"""What an effective conductivity cannot be beyond, whatever the structure."""


def hashin_shtrikman(fraction: float, k: float, other: float, axes: int) -> tuple[float, float]:
    """Return the bounds of an isotropic mixture of two phases (Hashin and Shtrikman, 1962).

    Parameters
    ----------
    fraction
        Share of the volume that the first phase, of conductivity ``k``, has.
    axes
        2 or 3.

    Returns
    -------
    float, float
        The lower and the upper one.
    """

    def around(matrix: float, inclusion: float, share: float) -> float:
        if share == 0 or matrix == 0 or inclusion == matrix:
            return matrix
        return matrix + share / (1 / (inclusion - matrix) + (1 - share) / (axes * matrix))

    if fraction == 1:
        return k, k
    both = around(k, other, 1 - fraction), around(other, k, fraction)
    return min(both), max(both)
