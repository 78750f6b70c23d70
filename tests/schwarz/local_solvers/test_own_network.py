"""A network of the user's own: found only by permission, checked before it is trained."""

import sys
from dataclasses import dataclass

import pytest
import torch

from mosaicdd.networks import registry
from mosaicdd.networks.registry import (
    NETWORKS,
    allow,
    build_network,
    check_behaviour,
    network_class,
)
from mosaicdd.networks.subdomain import Subdomain

SUBDOMAIN = Subdomain(cells=8, size=0.125)


@dataclass(frozen=True)
class OwnSettings:
    """Settings of `Own`."""

    width: int = 4


class Own(torch.nn.Module):
    """A product of a plain trunk and a plain branch."""

    Settings = OwnSettings
    linear = True

    def __init__(self, perimeter, settings):
        super().__init__()
        self.settings = settings
        self.trunk = torch.nn.Linear(2, settings.width)
        self.branch = torch.nn.Linear(perimeter, settings.width, bias=False)

    def prepare(self, points, merge=True):
        return self.trunk(points).tanh() @ self.branch.weight

    def apply_prepared(self, g, prepared):
        return torch.einsum("bp,...qp->bq" if prepared.ndim == 2 else "bp,bqp->bq", g, prepared)

    def forward(self, g, points):
        return self.apply_prepared(g, self.prepare(points))


class WithoutSettings(torch.nn.Module):
    """Lacks its settings."""

    linear = True


class WithoutPrepare(WithoutSettings):
    """Lacks a method."""

    Settings = OwnSettings

    def forward(self, g, points):
        return g


class WrongShape(Own):
    """Drops points."""

    def apply_prepared(self, g, prepared):
        return super().apply_prepared(g, prepared)[:, :1]


class Bent(Own):
    """Claims to be linear."""

    def apply_prepared(self, g, prepared):
        return super().apply_prepared(g, prepared).tanh()


class Failing(Own):
    """Raises."""

    def prepare(self, points, merge=True):
        raise KeyError("nothing here")


class Forgetful(Own):
    """Loses its settings."""

    def __init__(self, perimeter, settings):
        super().__init__(perimeter, settings)
        self.settings = None


def name_of(cls):
    return f"{__name__}:{cls.__name__ if isinstance(cls, type) else cls}"


@pytest.fixture(autouse=True)
def permissions(monkeypatch):
    monkeypatch.setattr(registry, "_allowed", set())
    monkeypatch.delenv("MOSAICDD_NETWORKS", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_an_allowed_network_is_built_with_its_settings():
    allow(name_of(Own))
    network = build_network(name_of(Own), {"width": 7}, SUBDOMAIN)
    assert isinstance(network, Own)
    assert network.settings.width == 7


def test_nothing_is_imported_that_the_user_has_not_named(monkeypatch):
    # As from a model file: its card must not choose which code runs.
    with pytest.raises(ValueError, match="set MOSAICDD_NETWORKS=antigravity:Fly"):
        network_class("antigravity:Fly")
    assert "antigravity" not in sys.modules
    monkeypatch.setenv("MOSAICDD_NETWORKS", f"other:Net,{name_of(Own)}")
    assert network_class(name_of(Own)) is Own


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        ("Nothing", "cannot be imported: module .* has no attribute 'Nothing'"),
        ("OwnSettings", "lacks the base class torch.nn.Module"),
        (WithoutSettings, "lacks a dataclass named Settings"),
        (WithoutPrepare, "lacks the method prepare"),
        (WrongShape, r"must give \(2, 3\) values .* got \(2, 1\)"),
        (Bent, "says that it is linear in g, and is not"),
        (Failing, "fails on 2 perimeters and 3 points: KeyError"),
        (Forgetful, "must keep its settings as the attribute settings"),
    ],
)
def test_what_is_no_network_is_refused_in_one_sentence(cls, message):
    allow(name_of(cls))
    with pytest.raises(ValueError, match=message) as caught:
        build_network(name_of(cls), {}, SUBDOMAIN)
    assert "\n" not in str(caught.value)


def test_a_module_that_does_not_exist_is_named():
    allow("no_such_module:Net")
    with pytest.raises(ValueError, match="no_such_module:Net cannot be imported"):
        network_class("no_such_module:Net")


@pytest.mark.parametrize("name", sorted(NETWORKS.keys() - {"family"}))
def test_the_shipped_networks_behave_as_is_asked_of_others(name):
    network = build_network(name, {"width": 8}, SUBDOMAIN)
    check_behaviour(name, network, Subdomain(cells=8))
