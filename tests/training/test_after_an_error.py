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
