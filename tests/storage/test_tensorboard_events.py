"""Event files hold the rows that were appended; a missing package is said in one line."""

import importlib.util

import pytest

from mosaicdd.storage.metrics_file import TensorBoardEvents, require_tensorboard


def read(folder):
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = module.EventAccumulator(str(folder))
    events.Reload()
    return {
        name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]
    }


def test_rows_are_there_while_the_training_runs_and_a_resumed_one_replaces_those_after_it(tmp_path):
    pytest.importorskip("tensorboard")
    first = TensorBoardEvents(require_tensorboard(tmp_path / "new" / "events"))
    for step in (0, 10, 20):
        first.append({"step": step, "lr": 0.5 * step, "data_loss": float("nan")})
    scalars = read(tmp_path / "new" / "events")
    assert set(scalars) == {"lr", "data_loss"}
    assert scalars["lr"] == [(0, 0.0), (10, 5.0), (20, 10.0)]
    TensorBoardEvents(tmp_path / "new" / "events", kept=10).append({"step": 15, "lr": 1.0})
    assert read(tmp_path / "new" / "events")["lr"] == [(0, 0.0), (10, 5.0), (15, 1.0)]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file, a folder is needed"):
        require_tensorboard(tmp_path / "file")
