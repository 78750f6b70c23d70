"""Sizes that the engine works with, and a plan counts with; nothing slow is imported here."""

CALLS, SUMS = 2, 4
"""Numbers that are added up over the ranks in an iteration: calls of the watch; and update, size,
residual and error of each problem."""

_FILLED = 8  # a filled subdomain takes about 8 times the memory of a swept one
# Ranks whose messages cost more than they would save by sharing the coarse problem, and coarse nodes from which on it
# is shared with fewer ranks and with more: by a model of cost (version 0.2).
_FEW, _REPLICATED_ON_FEW, _REPLICATED_ON_MANY = 8, 2**20, 2**17


def count_of_sums(problems: int) -> int:
    """Return how many numbers are added up over the ranks in an iteration."""
    return CALLS + SUMS * problems


def coarse_is_replicated(nodes: int, ranks: int) -> bool:
    """Say whether every rank solves the whole coarse problem, of so many nodes."""
    return ranks == 1 or nodes <= (_REPLICATED_ON_FEW if ranks <= _FEW else _REPLICATED_ON_MANY)


def fill_batch(batch_subdomains: int) -> int:
    """Return how many subdomains a fill hands to the local solver at once, where a sweep so many."""
    return max(1, batch_subdomains // _FILLED)
