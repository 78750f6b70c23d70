"""NaN and infinity that arise on one rank: all ranks leave together, with a status that says so."""

import pytest
import torch

from mosaicdd.parallel.halo import HaloExchange
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.interface import Interface

SOLVE = ("--cells", "128x96", "--json")


def spoil_boundary(monkeypatch, value):
    impose = Interface.impose

    def spoiled(self, boundary):
        impose(self, boundary)
        for lines, at in zip(self.lines, map(self.block.at_edge, (0, 1)), strict=True):
            lines[0, 0 if at[0] else -1, 5] = value

    monkeypatch.setattr(Interface, "impose", spoiled)


def spoil_weights(monkeypatch, value):
    init = Engine.__init__

    def spoiled(self, partition, local_solver, *others, **named):
        with torch.no_grad():
            next(local_solver.network.parameters()).view(-1)[7] = value
        init(self, partition, local_solver, *others, **named)

    monkeypatch.setattr(Engine, "__init__", spoiled)


def spoil_halo(monkeypatch, value):
    start, finish, travelling = HaloExchange.start, HaloExchange.finish, []

    def noted(self, arrays):
        start(self, arrays)
        travelling.append(arrays)

    def spoiled(self):
        finish(self)
        if len(travelling) == 5:
            lines = travelling[-1][0]
            lines[0, 1, lines.shape[2] // 2] = value

    monkeypatch.setattr(HaloExchange, "start", noted)
    monkeypatch.setattr(HaloExchange, "finish", spoiled)


@pytest.mark.limit(60)
@pytest.mark.ranks(2, 4)
@pytest.mark.parametrize("method", [(), ("--levels", "1"), ("--accelerate", "gmres")], ids=str)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("spoil", [spoil_boundary, spoil_weights, spoil_halo])
def test_what_is_not_finite_on_one_rank_ends_all_with_diverged_nan(
    spoil, value, method, mosaicdd, monkeypatch, comm, common_path, strict_json
):
    if comm.rank == comm.size - 1:
        spoil(monkeypatch, value)
    ended = mosaicdd("solve", "-o", common_path / "out.h5", *SOLVE, *method)
    assert ended.code == 1, ended.err
    assert "Traceback" not in ended.err
    assert strict_json(ended.out)["status"] == "diverged_nan"
