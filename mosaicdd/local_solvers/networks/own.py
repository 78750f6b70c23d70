"""Networks of the user's own, named ``module:Class``: found, and checked before anything is built.

A model file names the network that it belongs to, and loading a file must not run code that the
file has chosen. So a module is imported only where its name was given by the user: by
`allow`, or in the environment variable ``MOSAICDD_NETWORKS`` (names separated by commas).
"""

import dataclasses
import importlib
import os

import torch

from mosaicdd.local_solvers.networks.network import Network

_METHODS = ("forward", "prepare", "apply_prepared")
_allowed: set[str] = set()


def allow(name: str) -> None:
    """Note that the user asked for a network ``module:Class`` by its name."""
    _allowed.add(name)


def find_class(name: str) -> type[Network]:
    """Import the class ``module:Class`` and check that it has the parts of a network.

    Raises
    ------
    ValueError
        If the user has not named it, it cannot be imported, or it lacks something; one sentence.
    """
    module_name, _, class_name = name.partition(":")
    if name not in _allowed | set(os.environ.get("MOSAICDD_NETWORKS", "").split(",")):
        raise ValueError(
            f"the network {name} is code outside mosaicdd; if you trust it, set "
            f"MOSAICDD_NETWORKS={name}"
        )
    try:
        network = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, SyntaxError, ValueError) as error:
        raise ValueError(f"network {name} cannot be imported: {error}") from error
    if lacks := _missing(network):
        raise ValueError(f"network {name} lacks {lacks}; see mosaicdd/local_solvers/networks")
    return network


def _missing(network: object) -> str:
    """Name the first thing that a class lacks to be a network; empty if nothing."""
    if not (isinstance(network, type) and issubclass(network, torch.nn.Module)):
        return "the base class torch.nn.Module"
    settings = getattr(network, "Settings", None)
    if not (isinstance(settings, type) and dataclasses.is_dataclass(settings)):
        return "a dataclass named Settings"
    if not isinstance(getattr(network, "linear", None), bool):
        return "the attribute linear (True or False)"
    for method in _METHODS:
        if getattr(network, method, None) in (None, getattr(torch.nn.Module, method, None)):
            return f"the method {method}"
    return ""


@torch.no_grad()
def check_behaviour(name: str, network: Network, perimeter: int) -> None:
    """Try a network on two perimeters and three points.

    Raises
    ------
    ValueError
        If it fails, gives another shape than ``(2, 3)``, or its two steps differ from `forward`.
    """
    points = torch.tensor([[0.1, -0.2], [0.3, 0.7], [-0.6, -0.4]])
    g = torch.linspace(-1.0, 1.0, 2 * perimeter).view(2, perimeter)
    keeps_settings = isinstance(getattr(network, "settings", None), type(network).Settings)
    if not keeps_settings:
        raise ValueError(f"network {name} must keep its settings as the attribute settings")
    try:
        values = network(g, points)
        steps = network.apply_prepared(g, network.prepare(points))
        copies = network(g, points.expand(2, 3, 2))
    except Exception as error:
        raise ValueError(
            f"network {name} fails on 2 perimeters and 3 points: {type(error).__name__}: {error}"
        ) from error
    for what, result in (("forward", values), ("apply_prepared", steps), ("forward", copies)):
        if tuple(result.shape) != (2, 3):
            raise ValueError(
                f"{what} of network {name} must give (2, 3) values for 2 perimeters and 3 points, "
                f"got {tuple(result.shape)}"
            )
    if not _close(values, steps):
        raise ValueError(f"network {name}: apply_prepared(g, prepare(points)) differs from forward")
    if not _close(values, copies):
        raise ValueError(f"network {name}: points (B, Q, 2) give other values than points (Q, 2)")
    if network.linear and not _close(network(2 * g, points), 2 * values):
        raise ValueError(f"network {name} says that it is linear in g, and is not")


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two results are equal but for rounding in float32."""
    return torch.allclose(a, b, rtol=1e-3, atol=1e-5)
