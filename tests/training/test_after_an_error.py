"""After a training that failed, the ranks of the same program can train again.

It comes before the tests whose process group stays open (conftest.py).
"""

import pytest

import mosaicdd as m

SETTINGS = m.TrainingSettings(epochs=2, batch_size=12)


@pytest.mark.ranks(1, 2, 3)
def test_a_file_that_the_root_cannot_write_ends_all_and_the_next_training_runs(
    comm, lost, common_path
):
    folder, lose = lost
    generated = m.GenerationSettings(samples=40, windows=9)
    data = comm.bcast(m.generate(common_path / "data.h5", generated, ranks=comm))
    with pytest.raises(OSError, match="metrics"):
        m.train(data, folder / "model.h5", SETTINGS, ranks=comm, progress=lose)
    m.train(data, common_path / "model.h5", SETTINGS, ranks=comm)


def _full(*arguments, **options):
    raise OSError(28, "No space left on device")


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.limit(120)
@pytest.mark.parametrize(
    "write",
    [
        "mosaicdd.storage.metrics_file.MetricsFile.append",
        "mosaicdd.training.loop.write_model",
        "mosaicdd.storage.dataset_file.Dataset.write",
        "mosaicdd.storage.dataset_file.DatasetParts.write",
    ],
)
def test_what_the_root_cannot_write_is_the_same_error_on_all_ranks(
    comm, common_path, monkeypatch, write
):
    generated = m.GenerationSettings(samples=40, windows=9)

    def train():
        data = comm.bcast(m.generate(common_path / "data.h5", generated, ranks=comm))
        m.train(data, common_path / "model.h5", SETTINGS, ranks=comm)

    with monkeypatch.context() as patch:
        if comm.rank == 0:
            patch.setattr(write, _full)
        with pytest.raises(OSError, match="No space left") as failed:
            train()
    assert len(set(comm.allgather(str(failed.value)))) == 1
    assert not (common_path / "model.h5").exists()
