"""Files appear whole or not at all."""

import errno
import os
import stat

import pytest

from mosaicdd.storage.atomic import atomic_file, require_writable


def test_the_file_appears_only_at_success(tmp_path):
    target = tmp_path / "out.h5"
    with atomic_file(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
        assert temporary.parent == tmp_path
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["out.h5"]


def write_half(target):
    with atomic_file(target) as temporary:
        temporary.write_text("half")
        raise KeyError


def test_a_failure_keeps_the_old_file_and_leaves_nothing_else(tmp_path):
    target = tmp_path / "out.h5"
    target.write_text("old")
    with pytest.raises(KeyError):
        write_half(target)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.h5"]


def test_the_new_file_has_the_usual_permissions(tmp_path):
    with atomic_file(tmp_path / "out") as temporary:
        temporary.write_text("")
    (tmp_path / "usual").write_text("")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("out", "usual")]
    assert modes[0] == modes[1]


def test_a_process_keeps_its_mask_of_new_files_for_all_its_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("other threads make files meanwhile"))
    with atomic_file(tmp_path / "out") as temporary:
        temporary.write_text("new")


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


def test_a_missing_folder_is_named_in_one_line(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist") as error:
        require_writable(tmp_path / "missing" / "out.h5")
    assert "\n" not in str(error.value)


def test_a_folder_is_not_a_file_and_a_file_not_a_folder(tmp_path):
    with pytest.raises(IsADirectoryError):
        require_writable(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        require_writable(tmp_path / "file" / "out.h5")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a system without /proc")
def test_a_folder_that_takes_no_files_is_refused():
    with pytest.raises(
        OSError, match=r"/proc/out.h5: no file can be made in the folder /proc|read-only"
    ):
        require_writable("/proc/out.h5")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="read-only"):
        require_writable(tmp_path / "out.h5")


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
