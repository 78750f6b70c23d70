"""What is refused though it is no mistake: requests without a way, and names that have left."""


class Unsupported(ValueError):  # noqa: N818 - no fault of anybody: what it says is that there is no way
    """What was asked for is sound, and mosaicdd, or what was chosen of it, cannot do it.

    The message says what can do it, where anything can. A program that tries one way after another, as a
    network and then ``"exact"``, catches this, and leaves values that are wrong (`ValueError`) and arguments of
    the wrong kind (`TypeError`) to those who gave them.
    """


_MEDIA = "media are solved without a network, by 'exact'"
_NEWTON = "take 'exact' (Newton's method)"
_NONLINEAR = "nonlinear equations are solved by Newton's method, the local solver 'exact'"
_SECONDS = "plan counts messages and memory and predicts no seconds; leave it out"

FORMER = {
    "command": {"bench": "plan counts without rates; time a solve, whose report has its seconds"},
    "local solver": {
        **dict.fromkeys(("averaged", "diffusion", "diffusion-operator"), "take 'exact'"),
        **dict.fromkeys(("minimal-surface", "poisson-boltzmann", "subdomain-newton"), _NEWTON),
    },
    "network": {
        **dict.fromkeys(("conductances", "operator"), _MEDIA),
        **dict.fromkeys(("correction", "unrolled"), _NONLINEAR),
    },
    "option": {
        "generate --media": _MEDIA,
        "generate --no-labels": "all samples are solved; leave it out",
        **{f"plan --{name}": _SECONDS for name in ("iterations", "ranks-per-node", "rates")},
        "train --dims": "each rank has samples of its own; leave it out",
    },
    "reference": {
        "cholmod": "take 'direct'",
        **dict.fromkeys(("hypre", "pfmg", "petsc"), "take 'pyamg'"),
    },
    "kind of file": {
        "media": _MEDIA,
        "squares": _NONLINEAR,
        "training checkpoint": "go on with the version that wrote it, or train anew without resume",
    },
}
"""By kind and name: what to use instead."""


def refuse_former(kind: str, name: str) -> None:
    """Raise `ValueError` if a name of a kind has left; the message says what to use instead."""
    if instead := FORMER[kind].get(name):
        raise ValueError(f"the {kind} {name!r} has left: {instead}")
