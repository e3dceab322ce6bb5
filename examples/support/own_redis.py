"""A Redis server on a free port of 127.0.0.1, without persistence."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time


def free_port() -> int:
    """Return a port that is free now, below those of outgoing connections, which could take it meanwhile."""
    while True:
        port = random.randrange(10_000, 20_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Redis:
    """A server that runs until the end of the block."""

    def __init__(self) -> None:
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        if program is None:
            raise RuntimeError("there is no redis-server: tests/setup installs it")
        self._port = free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="polylimit-redis-")
        where = ["--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--dir", self._folder.name]
        self._process = subprocess.Popen(
            [program, *where], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"redis://127.0.0.1:{self._port}"

    def __enter__(self) -> Redis:
        end = time.monotonic() + 20
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise RuntimeError("redis-server does not answer")
            time.sleep(0.02)
        return self

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=5) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64) == b"+PONG\r\n"
        except OSError:
            return False

    def suspend(self, seconds: float) -> None:
        """Stop it for some time: its clients get no answers meanwhile, and all of them afterwards."""
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def __exit__(self, *_exception: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()
