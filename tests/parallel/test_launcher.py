"""What a rank says before it ends the job is read before the job ends."""

import os
import threading
import time

from mosaicdd.parallel import launcher

LATER = 0.2  # seconds until a busy launcher reads


def test_the_end_waits_until_a_launcher_has_read():
    read, write = os.pipe()
    os.write(write, b"why a rank has failed")
    started = time.monotonic()
    reader = threading.Timer(LATER, os.read, (read, 1000))
    reader.start()
    launcher._wait_until_read(write)
    assert LATER <= time.monotonic() - started < launcher._PATIENCE
    reader.join()
    for one in (read, write):
        os.close(one)


def test_the_end_does_not_wait_for_nobody(monkeypatch):
    monkeypatch.setattr(launcher, "_PATIENCE", LATER)
    read, write = os.pipe()
    os.write(write, b"unheard")
    started = time.monotonic()
    launcher._wait_until_read(write)
    assert LATER <= time.monotonic() - started < 10 * LATER
    for one in (read, write):
        os.close(one)


def test_the_end_does_not_wait_for_a_file_or_what_is_closed(tmp_path):
    started = time.monotonic()
    with open(tmp_path / "log", "w") as file:
        file.write("nobody has to read this now")
        file.flush()
        launcher._wait_until_read(file.fileno())
        closed = file.fileno()
    launcher._wait_until_read(closed)
    assert time.monotonic() - started < launcher._PATIENCE
