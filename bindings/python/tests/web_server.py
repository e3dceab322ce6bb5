"""A real web server with worker processes, for tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

APPS = Path(__file__).parent / "apps"

#: The threads of gunicorn close a connection idle for 2 s, which on a busy machine races with its reuse.
GUNICORN = ["--keep-alive", "60"]
#: uWSGI closes each connection after its response, and announces that only with this header.
UWSGI = ["--master", "--die-on-term", "--need-app", "--strict", "--add-header", "Connection: close"]


class WebServer:
    """gunicorn, uvicorn or uWSGI on a socket that already listens, so that no connection is refused."""

    def __init__(self, module: str, *arguments: str, store: str) -> None:
        self._arguments = arguments
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(512)
        descriptor = self._listener.fileno()
        port = self._listener.getsockname()[1]
        command = {
            "gunicorn": [sys.executable, "-m", "gunicorn", *GUNICORN, "--bind", f"fd://{descriptor}"],
            "uvicorn": [sys.executable, "-m", "uvicorn", "--fd", str(descriptor)],
            "uwsgi": [str(Path(sys.executable).parent / "uwsgi"), *UWSGI, "--http-socket", f"fd://{descriptor}"],
        }[module]
        self.log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [*command, *arguments],
            cwd=APPS,
            env={**os.environ, "STORE": store, "PYTHONUNBUFFERED": "1"},
            pass_fds=[descriptor],
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

    def __enter__(self) -> WebServer:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.client.close()
        self._listener.close()
        self._wait_for_workers()
        self._process.terminate()
        try:
            status = self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise
        self.log.seek(0)
        log = self.log.read().decode()
        self.log.close()
        # The log explains a failure.
        assert status in (0, -signal.SIGTERM), log
        assert "Traceback" not in log, log

    def _wait_for_workers(self) -> None:
        """Wait until each worker of a lazy uWSGI has loaded the application; an earlier stop counts as a failure."""
        if "--lazy-apps" not in self._arguments:
            return
        loading = int(self._arguments[self._arguments.index("--processes") + 1])
        end = time.monotonic() + 30
        while self._process.poll() is None and time.monotonic() < end:
            # `pread` leaves the position at which the server writes.
            if os.pread(self.log.fileno(), 1 << 20, 0).count(b"WSGI app 0 ") >= loading:
                return
            time.sleep(0.01)

    def statuses(self, path: str, times: int, **arguments) -> Counter[int]:
        """Send requests, 16 at a time, and count the responses of each status."""

        def ask(_number: int) -> int:
            return self.client.get(path, **arguments).status_code

        with ThreadPoolExecutor(16) as pool:
            return Counter(pool.map(ask, range(times)))
