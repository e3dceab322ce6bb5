"""Clients that call a service over connections that they keep, until the end of the block."""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60


def ask(port: int, path: str) -> tuple[int, str]:
    """Send one request, and give the status and the body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


class Load:
    """One thread for each client. ``path`` gives the path of a client's request by its number."""

    def __init__(self, port: int, path: Callable[[int], str], *, clients: int = 1, rest: float = 0.0) -> None:
        self._port = port
        self._path = path
        self._rest = rest
        self._numbers = itertools.count()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]
        self.error: Exception | None = None

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        try:
            while not self._ended.is_set():
                connection.request("GET", self._path(next(self._numbers)))
                connection.getresponse().read()
                time.sleep(self._rest)
        except (OSError, http.client.HTTPException) as error:
            self.error = error
        finally:
            connection.close()
