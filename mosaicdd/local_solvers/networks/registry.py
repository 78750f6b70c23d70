"""The networks by name, and how one is built from a name and plain settings.

Every network is a `torch.nn.Module` with

- ``Settings``, a frozen dataclass, and ``linear``, whether it is linear in the perimeter values; ``axes``, if it is for
  cubes, too: ``(2, 3)``, or ``(3,)`` of cubes alone;
- ``Network(P, settings)``, the number of perimeter nodes and its settings, to build one;
- ``forward(g, points)``: unit remainders ``(B, P)`` and points ``(Q, 2)`` in ``[-1, 1]``, order
  (y, x), of cubes ``(Q, 3)``, or one set for each perimeter, ``(B, Q, 2)``, to values ``(B, Q)``;
- ``prepare(points)`` and ``apply_prepared(g, prepared)``, the same in two steps: the first holds all
  that depends on the points only. For a linear network it is the operator ``(Q, P)``;
- if it can, ``jet(g, points, a, second_only)``: values and derivatives, as `networks.taylor`.

The network ``family`` serves a family of operators: ``network.at(operator, subdomain)`` is the network
for one of them.

A name with a colon, ``module:Class``, is a network of the user's own, checked before anything is built. A model file
names the network that it belongs to, and loading a file must not run code that the file has chosen. So a module is
imported only where its name was given by the user: by `allow`, or in the environment variable ``MOSAICDD_NETWORKS``
(names separated by commas).
"""

import dataclasses
import importlib
import os
from dataclasses import fields
from typing import Any, TypeGuard

import torch

from mosaicdd.former import refuse_former
from mosaicdd.lattice.axes import times
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.faces import FacesNetwork
from mosaicdd.local_solvers.networks.family import FamilyNetwork
from mosaicdd.local_solvers.networks.mlp import MLP, SDNet, SDNetConcat
from mosaicdd.local_solvers.networks.network import Network
from mosaicdd.local_solvers.networks.trunk import DeepONet, LinearNetwork
from mosaicdd.settings import meant, unknown
from mosaicdd.torch_defaults import float32_on_processor

NETWORKS: dict[str, type[Network]] = {
    "linear": LinearNetwork,
    "sdnet": SDNet,
    "sdnet-concat": SDNetConcat,
    "deeponet": DeepONet,
    "mlp": MLP,
    "family": FamilyNetwork,
    "faces": FacesNetwork,
}


def known_networks() -> list[str]:
    """Return the names of all networks that can be trained."""
    return sorted(NETWORKS)


def is_family(network: torch.nn.Module) -> TypeGuard[FamilyNetwork]:
    """Return whether a network serves a family of operators."""
    return isinstance(network, FamilyNetwork)


def network_class(name: str) -> type[Network]:
    """Return the class of a name in `NETWORKS`, or of ``module:Class``; errors as `find_class`."""
    if name in NETWORKS:
        return NETWORKS[name]
    if ":" in name:
        return find_class(name)
    refuse_former("network", name)
    raise ValueError(unknown("network", name, known_networks(), ", or your own module:Class"))


def _settings_of(kind: Any, name: str, values: dict) -> Any:
    """Build the settings of a network from plain values; `ValueError` if one is unknown or of another type."""
    known: dict[str, Any] = {field.name: field.type for field in fields(kind.Settings)}
    for key, value in values.items():
        if key not in known:
            raise ValueError(
                f"network {name!r} has no setting {key!r}{meant(key, known)}; known: {', '.join(known)}"
            )
        types = (int, float) if known[key] is float else known[key]
        if not isinstance(value, types) or isinstance(value, bool) != (known[key] is bool):
            raise ValueError(
                f"setting {key!r} of network {name!r} must be {known[key].__name__}, got {value!r}"
            )
    return kind.Settings(**values)


@float32_on_processor()
@torch.random.fork_rng([])  # the generator is the program's
def build_network(name: str, settings: dict, subdomain: Subdomain) -> Network:
    """Build a network with random weights; errors as of its settings, and as `check_behaviour` of the user's own."""
    kind = network_class(name)
    checked = _settings_of(kind, name, settings)
    if subdomain.axes not in getattr(kind, "axes", (2,)):
        able = [n for n, known in NETWORKS.items() if subdomain.axes in known.axes]
        raise ValueError(
            f"the network {name} is not for {subdomain.kind}s of {times(subdomain.shape)} cells; "
            f"for these take {', '.join(able)}"
        )
    network = kind(len(subdomain.perimeter), checked)
    if name not in NETWORKS:
        check_behaviour(name, network, subdomain)
    return network


_METHODS = ("forward", "prepare", "apply_prepared")
_allowed: set[str] = set()


def allow(name: str) -> None:
    """Note that the user asked for a network ``module:Class`` by its name."""
    _allowed.add(name)


def find_class(name: str) -> type[Network]:
    """Import ``module:Class``, which the user must have named; `ValueError` if it lacks a part of a network."""
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
        raise ValueError(f"network {name} lacks {lacks}; docs/networks.md has a whole example")
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
def check_behaviour(name: str, network: Network, subdomain: Subdomain) -> None:
    """Raise `ValueError` if a network fails, says wrong things of itself, or its two steps differ from `forward`."""
    axes, perimeter = subdomain.axes, len(subdomain.perimeter)
    points = torch.tensor([[0.1, -0.2, 0.5], [0.3, 0.7, -0.1], [-0.6, -0.4, 0.2]])[:, :axes]
    g = torch.linspace(-1.0, 1.0, 2 * perimeter).view(2, perimeter)
    keeps_settings = isinstance(getattr(network, "settings", None), type(network).Settings)
    if not keeps_settings:
        raise ValueError(f"network {name} must keep its settings as the attribute settings")
    try:
        values = network(g, points)
        steps = network.apply_prepared(g, network.prepare(points))
        copies = network(g, points.expand(2, 3, axes))
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
        raise ValueError(
            f"network {name}: points (B, Q, {axes}) give other values than points (Q, {axes})"
        )
    if network.linear and not _close(network(2 * g, points), 2 * values):
        raise ValueError(f"network {name} says that it is linear in g, and is not")


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two results are equal but for rounding in float32."""
    return torch.allclose(a, b, rtol=1e-3, atol=1e-5)
