"""The networks by name, and how one is built from a name and plain settings.

Every network is a `torch.nn.Module` with

- ``Settings``, a frozen dataclass, and ``linear``, whether it is linear in the perimeter values;
- ``Network(P, settings)``, the number of perimeter nodes and its settings, to build one;
- ``forward(g, points)``: unit remainders ``(B, P)`` and points ``(Q, 2)`` in ``[-1, 1]``, order
  (y, x), or one set for each perimeter, ``(B, Q, 2)``, to values ``(B, Q)``;
- ``prepare(points)`` and ``apply_prepared(g, prepared)``, the same in two steps: the first holds all
  that depends on the points only. For a linear network it is the operator ``(Q, P)``;
- if it can, ``jet(g, points, a, second_only)``: values and derivatives, as `networks.taylor`.

The network ``family`` serves a family of operators: ``network.at(operator, subdomain)`` is the network
for one of them.

A name with a colon, ``module:Class``, is a network of the user's own.
"""

from dataclasses import fields
from typing import Any, TypeGuard

import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.deeponet import DeepONet
from mosaicdd.local_solvers.networks.family import FamilyNetwork
from mosaicdd.local_solvers.networks.linear import LinearNetwork
from mosaicdd.local_solvers.networks.mlp import MLP
from mosaicdd.local_solvers.networks.network import Network
from mosaicdd.local_solvers.networks.own import check_behaviour, find_class
from mosaicdd.local_solvers.networks.sdnet import SDNet
from mosaicdd.local_solvers.networks.sdnet_concat import SDNetConcat
from mosaicdd.settings import meant, unknown

NETWORKS: dict[str, type[Network]] = {
    "linear": LinearNetwork,
    "sdnet": SDNet,
    "sdnet-concat": SDNetConcat,
    "deeponet": DeepONet,
    "mlp": MLP,
    "family": FamilyNetwork,
}


def is_family(network: torch.nn.Module) -> TypeGuard[FamilyNetwork]:
    """Return whether a network serves a family of operators."""
    return isinstance(network, FamilyNetwork)


def network_class(name: str) -> type[Network]:
    """Return the class of a name in `NETWORKS`, or of ``module:Class``.

    Raises
    ------
    ValueError
        If the name is unknown, or the user's class lacks something.
    """
    if name in NETWORKS:
        return NETWORKS[name]
    if ":" in name:
        return find_class(name)
    raise ValueError(unknown("network", name, sorted(NETWORKS), ", or your own module:Class"))


def check_settings(name: str, values: dict) -> object:
    """Build the settings of a network from plain values.

    Parameters
    ----------
    values
        For fields of the network's settings; the others keep their defaults.

    Raises
    ------
    ValueError
        If the name or a setting is unknown, or a value is of another type or out of its range.
    """
    return settings_of(network_class(name).Settings, name, values)


def settings_of(settings: type[Any], name: str, values: dict) -> Any:
    """Build settings of a class from plain values, for a network by its name; errors as `check_settings`."""
    known: dict[str, Any] = {field.name: field.type for field in fields(settings)}
    for key, value in values.items():
        if key not in known:
            raise ValueError(
                f"network {name!r} has no setting {key!r}{meant(key, known)}; known: {', '.join(known)}"
            )
        kind = (int, float) if known[key] is float else known[key]
        if not isinstance(value, kind) or isinstance(value, bool) != (known[key] is bool):
            raise ValueError(
                f"setting {key!r} of network {name!r} must be {known[key].__name__}, got {value!r}"
            )
    return settings(**values)


@torch.random.fork_rng([])  # the generator is the program's
def build_network(name: str, settings: dict, subdomain: Subdomain) -> Network:
    """Build a network with random weights.

    Raises
    ------
    ValueError
        As `check_settings`; or if a network of the user's own does not behave as one.
    """
    checked = check_settings(name, settings)
    network = network_class(name)(4 * subdomain.cells, checked)
    if name not in NETWORKS:
        check_behaviour(name, network, 4 * subdomain.cells)
    return network
