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
ADDRESS = re.compile(rb"(?:http://|uwsgi socket 0 bound to TCP address )127\.0\.0\.1:(\d+)")
#: How long a service may take to end, in seconds.
PATIENCE = 60
#: Every worker of uvicorn prints when it is ready.
READY = {"fastapi": b"Application startup complete"}


class Service:
    """A running example with all its processes, until the end of the block.

    ``command`` starts it in another way than its own; ``environment`` adds variables, such as ``PORT`` and ``WORKERS``.
    """

    def __init__(
        self, name: str, url: str, quota: str, *, command: list[str] | None = None, **environment: str
    ) -> None:
        self.name = name
        folder = EXAMPLES / name
        own = folder / "run" if (folder / "run").exists() else TARGET / "examples" / name
        self._command = command or [str(own)]
        self._log = tempfile.TemporaryFile()
        self._environment = {
            "PORT": "0",
            "WORKERS": "2",
            "POLYLIMIT_URL": url,
            "POLYLIMIT_QUOTA": quota,
            **environment,
        }
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            env={
                **os.environ,
                "PATH": f"{TARGET / 'python-venv' / 'bin'}:{os.environ['PATH']}",
                "LD_LIBRARY_PATH": str(TARGET / "c" / "dev" / "lib"),
                "RUBYLIB": str(EXAMPLES.parent / "bindings" / "uniffi" / "ruby" / "lib"),
                "PYTHONUNBUFFERED": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                **self._environment,
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
            self.process.wait(20)
        # Kill workers that the parent left running; the parent has to be reaped in any case.
        self._signal(signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def restart(self) -> None:
        """End the process, and start another one on the same port."""
        self._environment["PORT"] = str(self.port())
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.process = self._start()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def port(self, seconds: float = 60) -> int:
        """Wait until it listens, and return its port."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            log = self.log()
            found = ADDRESS.search(log)
            if found and log.count(READY.get(self.name, b"")) >= int(self._environment["WORKERS"]):
                return int(found[1])
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} has ended:\n{log.decode(errors='replace')}")
            time.sleep(0.02)
        raise RuntimeError(f"{self.name} does not listen after {seconds} s:\n{self.log().decode(errors='replace')}")

    def log(self) -> bytes:
        """Return what it has printed so far."""
        return os.pread(self._log.fileno(), 1 << 20, 0)
