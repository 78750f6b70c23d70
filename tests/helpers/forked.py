"""Processes that are forks of the test: they have imported everything, which takes others seconds."""

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback

import mosaicdd.cli.main as command_line


def run(command, *arguments, launcher=()):
    """Run a command in processes of its own to its end; return the exit code, its JSON, and stderr."""
    done = subprocess.run(
        [*launcher, *command, *arguments], capture_output=True, text=True, timeout=100, check=False
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


class Forked:
    """Some work in a process of its own, which does not know that it is one; as `subprocess.Popen`.

    Parameters
    ----------
    work
        A function, or the words of a command line of ``mosaicdd``, the first one included.
    folder
        Where it works; by default here.
    """

    def __init__(self, work, folder=None):
        self._streams = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115 - closed with it
        self.returncode = None
        self.pid = os.fork()
        if self.pid == 0:
            self._be(work if callable(work) else lambda: _command(work), folder)

    def _be(self, work, folder):
        code = 1
        try:
            for stream, number in zip(self._streams, (1, 2), strict=True):
                os.dup2(stream.fileno(), number)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            if folder is not None:
                os.chdir(folder)
                sys.path.insert(0, str(folder))
            work()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException:  # noqa: BLE001 - the process ends here
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def poll(self):
        """Return the exit code, minus the signal that has ended it, None while it is at work."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def communicate(self, timeout=100):
        """Wait for its end; return what it printed, and what on stderr."""
        limit = time.monotonic() + timeout
        while self.poll() is None:
            assert time.monotonic() < limit, f"still at work after {timeout} s"
            time.sleep(0.002)
        return [self._read(stream) for stream in self._streams]

    def _read(self, stream):
        stream.seek(0)
        return stream.read()


def _command(words):
    sys.argv = [str(word) for word in words]
    command_line.main()
