"""Programs that an application starts next to itself: `polylimit serve` and proxies."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
POLYLIMIT = os.environ.get("POLYLIMIT", str(ROOT / "target/debug/polylimit"))
#: How long a program may take to start, in seconds.
PATIENCE = 60


class Programs(contextlib.ExitStack):
    """Programs that end with the block, and a folder for their files."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(self.enter_context(tempfile.TemporaryDirectory()))
        self._files = 0

    def write(self, name: str, text: str) -> Path:
        """Write a file into the folder, under a name of its own."""
        self._files += 1
        path = self.folder / f"{self._files}-{name}"
        path.write_text(text)
        return path

    def start(self, command: list[str], port: int) -> None:
        """Start a program and wait until it listens on a port."""
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2)
        self.callback(program.wait)
        self.callback(program.terminate)
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            if program.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{command[0]} does not listen on port {port}")
            time.sleep(0.02)

    def serve(self, document: str) -> int:
        """Start `polylimit serve` with a document and return its port."""
        port = free_port()
        policies = str(self.write("limits.toml", document))
        listener = f"http://127.0.0.1:{port}"
        # It has nothing to finish once the driver is done.
        options = ["--listen", listener, "--admin", "off", "--trust", "127.0.0.0/8", "--drain", "1ms"]
        self.start([POLYLIMIT, "--policies", policies, "serve", *options], port)
        return port


def free_port() -> int:
    """Return a port that is free now, below those of outgoing connections, which could take it meanwhile."""
    while True:
        port = random.randrange(10_000, 20_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def version_of(*command: str) -> str:
    """Return the version that a program prints: the first word that has a dot between digits."""
    printed = subprocess.run(command, check=True, capture_output=True, text=True)
    for word in (printed.stdout + printed.stderr).replace("/", " ").split():
        number = word.lstrip("v")
        if number[:1].isdigit() and "." in number:
            return number
    raise RuntimeError(f"{command[0]} does not print its version")
