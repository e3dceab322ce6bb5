"""Starts and ends the services of the examples, as real processes on free ports of 127.0.0.1."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent
TARGET = EXAMPLES.parent / "target"
#: Every server prints the address on which it listens.
ADDRESS = re.compile(rb"http://127\.0\.0\.1:(\d+)")
#: Every worker of uvicorn prints when it is ready.
READY = {"fastapi": b"Application startup complete"}


class Service:
    """A running example with all its processes, until the end of the block."""

    def __init__(self, name: str, url: str, quota: str, workers: int = 2) -> None:
        self.name = name
        self._workers = workers
        folder = EXAMPLES / name
        command = folder / "run" if (folder / "run").exists() else TARGET / "examples" / name
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [command],
            env={
                **os.environ,
                "PATH": f"{TARGET / 'python-venv' / 'bin'}:{os.environ['PATH']}",
                "LD_LIBRARY_PATH": str(TARGET / "c" / "dev" / "lib"),
                "RUBYLIB": str(EXAMPLES.parent / "bindings" / "uniffi" / "ruby" / "lib"),
                "PYTHONUNBUFFERED": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PORT": "0",
                "WORKERS": str(workers),
                "POLYLIMIT_URL": url,
                "POLYLIMIT_QUOTA": quota,
            },
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        # Kill workers that the parent left running; the parent has to be reaped in any case.
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def port(self, seconds: float = 60) -> int:
        """Wait until it listens, and return its port."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            log = self.log()
            found = ADDRESS.search(log)
            if found and log.count(READY.get(self.name, b"")) >= self._workers:
                return int(found[1])
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.name} has ended:\n{log.decode(errors='replace')}")
            time.sleep(0.02)
        raise RuntimeError(f"{self.name} does not listen after {seconds} s:\n{self.log().decode(errors='replace')}")

    def log(self) -> bytes:
        """Return what it has printed so far."""
        return os.pread(self._log.fileno(), 1 << 20, 0)
