"""A framework's application under a real server with one process: bare, with polylimit, and with the usual peer.

The client keeps 16 connections busy.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
import time
from pathlib import Path

APPS = Path(__file__).parent
CONNECTIONS = 16
ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Served:
    def __init__(self, framework, name, store):
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(128)
        descriptor = self._listener.fileno()
        where = {
            "flask": [
                "gunicorn",
                "--bind",
                f"fd://{descriptor}",
                "--threads",
                "4",
                "--keep-alive",
                "60",
                "--log-level",
                "error",
            ],
            "fastapi": ["uvicorn", "--fd", str(descriptor), "--timeout-keep-alive", "60", "--log-level", "error"],
        }[framework]
        self._process = subprocess.Popen(
            [sys.executable, "-m", *where, "served_app:app"],
            cwd=APPS,
            env={**os.environ, "FRAMEWORK": framework, "WHICH": name, "STORE": store or ""},
            pass_fds=[descriptor],
        )
        self._connections = []
        for _ in range(CONNECTIONS):
            connection = socket.create_connection(self._listener.getsockname())
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.append(connection)
        self._selector = selectors.EpollSelector()
        for connection in self._connections:
            self._selector.register(connection, selectors.EVENT_READ)

    def round(self, seconds):
        """Return microseconds per request. No request is under way between two rounds."""
        for connection in self._connections:
            connection.sendall(ASK)
        under_way = CONNECTIONS
        count, start = 0, time.perf_counter()
        while under_way:
            for ready, _ in self._selector.select(5):
                # Without quick acknowledgement, a server that writes a response in two parts waits up to 40 ms.
                ready.fileobj.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                answer = ready.fileobj.recv(4096)
                assert answer.startswith(b"HTTP/1.1 200 "), answer
                # The response is complete when its body has arrived.
                while not answer.endswith(b"hello") and not answer.endswith(b'"hello"'):
                    answer += ready.fileobj.recv(4096)
                count += 1
                if time.perf_counter() - start < seconds:
                    ready.fileobj.sendall(ASK)
                else:
                    under_way -= 1
        return (time.perf_counter() - start) / count * 1e6

    def close(self):
        for connection in self._connections:
            connection.close()
        self._selector.close()
        self._listener.close()
        self._process.terminate()
        self._process.wait(20)


def measure(framework, store, peer, rounds, seconds):
    served = {name: Served(framework, name, store) for name in ("bare", "polylimit", peer)}
    times = {name: [] for name in served}
    try:
        for each in served.values():
            each.round(seconds)
        for _ in range(rounds):
            for name, each in served.items():
                times[name].append(each.round(seconds))
    finally:
        for each in served.values():
            each.close()
    return times
