"""How items are shared evenly among the ranks of a process grid: arithmetic without MPI.

The first ranks of an axis get one item more where it does not divide.
"""

Dims = tuple[int, ...]
"""Numbers per axis, (y, x)."""


def share(count: int, ranks: int, coordinate: int) -> tuple[int, int]:
    """Return start and stop of what one rank of an axis gets of ``count`` items."""
    base, more = divmod(count, ranks)
    start = coordinate * base + min(coordinate, more)
    return start, start + base + (coordinate < more)


def fitting_dims(size: int, counts: Dims) -> list[Dims]:
    """List the dims of ``size`` ranks that fit, those with the shortest block edges first.

    Parameters
    ----------
    size
        Number of ranks.
    counts
        Items to distribute per axis, (y, x).

    Raises
    ------
    ValueError
        If no dims fit.
    """
    fitting = [
        (size // px, px)
        for px in range(1, size + 1)
        if size % px == 0 and size // px <= counts[0] and px <= counts[1]
    ]
    if not fitting:
        raise ValueError(
            f"{size} ranks do not fit: the lattice has {counts[1]}x{counts[0]} subdomains, each "
            f"rank needs one at least; use at most {_most_ranks(size, counts)} ranks"
        )
    return sorted(fitting, key=lambda dims: counts[0] / dims[0] + counts[1] / dims[1])


def require_fitting(dims: Dims, counts: Dims) -> None:
    """Check that every rank gets an item.

    Raises
    ------
    ValueError
        If an axis has fewer items than ranks.
    """
    for name, dim, count in zip("yx", dims, counts, strict=True):
        if dim > count:
            raise ValueError(
                f"dims {dims[1]}x{dims[0]}: {dim} ranks along {name}, but the "
                f"lattice has only {count} subdomains there"
            )


def _most_ranks(size: int, counts: Dims) -> int:
    """Return the largest number of ranks, at most ``size``, that fit the lattice."""
    return max(y * min(size // y, counts[1]) for y in range(1, min(size, counts[0]) + 1))
