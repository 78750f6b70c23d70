"""Names of earlier versions that have left, and what takes their place."""

_NEWTON = "take 'exact' (Newton's method)"
_NONLINEAR = "nonlinear equations are solved by Newton's method, the local solver 'exact'"
FORMER = {
    "local solver": dict.fromkeys(
        ("minimal-surface", "poisson-boltzmann", "subdomain-newton"), _NEWTON
    ),
    "network": dict.fromkeys(("correction", "unrolled"), _NONLINEAR),
    "option": {"generate --no-labels": "all samples are solved; leave it out"},
    "kind of file": {"squares": _NONLINEAR},
}
"""By kind and name: what to use instead."""


def refuse_former(kind: str, name: str) -> None:
    """Raise `ValueError` if a name of a kind has left; the message says what to use instead."""
    if instead := FORMER[kind].get(name):
        raise ValueError(f"the {kind} {name!r} has left: {instead}")
