"""What ``bench`` measures is what a solve does."""

import numpy as np
import pytest
import scipy.fft

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.planning import measure
from mosaicdd.planning.rates import read_rates, write_rates
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.schwarz.settings import SolveSettings


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("axes", [2, 3])
def test_all_that_these_ranks_can_show_is_measured(axes, ranks, common_path, monkeypatch):
    shapes = []
    transform = scipy.fft.dstn

    def noting(values, *arguments, **named):
        if len(values) == 1:  # not of a cube's own operator
            shapes.append(values.shape)
        return transform(values, *arguments, **named)

    monkeypatch.setattr(scipy.fft, "dstn", noting)
    for name, size in {"SIZES": {axes: (2, 4)}, "_VECTOR": 2**16, "_WRITTEN": 256}.items():
        monkeypatch.setattr(measure, name, size)
    monkeypatch.setattr(measure, "MEDIUM_SIDES", {axes: (16, 24)})
    measurement = measure.Measurement(
        lambda: ExactSolver(LAPLACE.at(), Subdomain(cells=8, axes=axes)), SolveSettings()
    )
    rates = measurement(ranks, common_path, lambda fraction: None)
    # The coarse solve is timed by the transforms of a solve, which makes one per iteration and one
    # for the estimate; the clock makes many more.
    assert set(shapes) == {(1, *(3,) * axes), (1, *(7,) * axes)}
    solves = 3 * (measure.ITERATIONS + 1)
    assert all(shapes.count(shape) > 2 * solves for shape in set(shapes))
    assert np.all(np.array(rates.transform.seconds) > 0)
    assert (rates.ranks, rates.axes) == (ranks.size, axes)
    assert (rates.within_node is None) == (rates.gather is None) == (ranks.size == 1)
    assert rates.between_nodes is rates.staging is None
    if ranks.is_root:
        write_rates(common_path / "rates.json", rates)
        assert read_rates(common_path / "rates.json") == rates
