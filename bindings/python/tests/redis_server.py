"""A real Redis server for as long as a test needs one."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path


class RedisServer:
    """A server on a free port of 127.0.0.1; it can be stopped and started again."""

    def __init__(self, port: int | None = None) -> None:
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        assert program, "no redis-server here: tests/setup installs it"
        self._program = program
        self._folder = tempfile.mkdtemp(prefix="polylimit-redis-")
        self.port = free_port() if port is None else port
        self._process: subprocess.Popen[bytes] | None = None
        # Until the server listens, another process may take the port.
        while not self._starts():
            assert port is None, (Path(self._folder) / "log").read_text()
            self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        assert self._starts(), (Path(self._folder) / "log").read_text()

    def _starts(self) -> bool:
        """Start the program and wait for it; return whether it answers, and has not ended."""
        command = [self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self._folder]
        with (Path(self._folder) / "log").open("ab") as log:
            process = self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: process.poll() is not None or self.command("PING") == b"+PONG\r\n", "redis-server answers")
        return process.poll() is None

    def stop(self) -> None:
        """Kill it, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Suspend the process; the system goes on accepting connections and data."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def command(self, *words: str) -> bytes | None:
        """Send a command; return the start of the reply, or None if the server is down."""
        text = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(text.encode())
            return connection.recv(65536)
        return None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)


def free_port() -> int:
    """Return a port that is free now, below those of outgoing connections, which could take it meanwhile."""
    while True:
        port = random.randrange(10_000, 20_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def until(condition, what: str, seconds: float = 20) -> None:
    """Wait until the condition is true, for a limited time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s in vain until {what}"
        time.sleep(0.01)
