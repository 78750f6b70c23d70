"""Networks that have a training of their own are trained by the same two functions as all others."""

import pytest

import mosaicdd as m
from mosaicdd.training.lessons import LESSONS

FEW = m.TrainingSettings(epochs=1, batch_size=4, validations=1)
DATA = {
    "conductances": lambda: m.MediaSettings(samples=6, validation=0.4),
    "operator": lambda: m.MediaSettings(samples=6, validation=0.4),
    "correction": lambda: m.SquareSettings("poisson-boltzmann", samples=8, validation=0.4),
    "unrolled": lambda: m.SquareSettings("minimal-surface", samples=8, validation=0.4),
}


@pytest.mark.parametrize("network", LESSONS)
def test_data_are_made_and_every_network_is_trained_from_python(network, tmp_path):
    data, model, reports = tmp_path / "data.h5", tmp_path / "model.h5", []
    made = m.generate(data, DATA[network]())
    result = m.train(data, model, FEW, network=network, progress=reports.append)
    assert result.finished
    assert result.card.network == network
    assert result.card.dataset_hash == made.content_hash
    assert result.figures["error"] == min(report.error for report in reports)
    assert model.is_file()
