"""Files appear whole or not at all."""

import errno
import os
import stat

import pytest

from mosaicdd.storage.atomic import atomic_file, require_writable


def test_the_file_appears_only_at_success_with_the_usual_permissions(tmp_path, monkeypatch):
    target = tmp_path / "out.h5"
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("other threads make files meanwhile"))
    with atomic_file(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
        assert temporary.parent == tmp_path
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["out.h5"]
    (tmp_path / "usual").write_text("")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_failure_keeps_the_old_file_and_leaves_nothing_else(tmp_path):
    target = tmp_path / "out.h5"
    target.write_text("old")
    with pytest.raises(KeyError), atomic_file(target) as temporary:
        raise KeyError(temporary.write_text("half"))
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.h5"]


def test_the_content_is_on_the_disk_before_the_name_is_there(tmp_path, monkeypatch):
    target, synced = tmp_path / "out.h5", []

    def sync(descriptor):
        assert not target.exists()
        synced.append(os.fstat(descriptor))

    monkeypatch.setattr(os, "fsync", sync)
    with atomic_file(target) as temporary:
        temporary.write_text("new")
    assert [(s.st_ino, s.st_size) for s in synced] == [(target.stat().st_ino, 3)]


def test_an_error_of_writing_names_the_file_and_not_its_temporary_one(tmp_path):
    line = rf"^{tmp_path}/out.h5: the file could not be written \(No space left on device\)$"
    with pytest.raises(OSError, match=line), atomic_file(tmp_path / "out.h5") as temporary:
        raise OSError(errno.ENOSPC, "No space left on device", temporary)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        require_writable(tmp_path / "file" / "out.h5")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a system without /proc")
def test_a_folder_that_takes_no_files_is_refused():
    with pytest.raises(
        OSError, match=r"/proc/out.h5: no file can be made in the folder /proc|read-only"
    ):
        require_writable("/proc/out.h5")


def test_a_link_leads_where_it_did_and_its_target_is_replaced(tmp_path):
    (tmp_path / "scratch").mkdir()
    target, link = tmp_path / "scratch" / "out.txt", tmp_path / "out.txt"
    link.symlink_to(target)
    for text in ("first", "second"):
        with atomic_file(link) as temporary:
            assert temporary.parent == target.parent
            temporary.write_text(text)
        assert link.is_symlink()
        assert target.read_text() == text
    link.unlink()
    link.symlink_to(tmp_path / "missing" / "out.txt")
    with pytest.raises(FileNotFoundError, match="missing"), atomic_file(link):
        pass
