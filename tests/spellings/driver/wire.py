"""Requests as bytes on sockets: what a client library would correct or refuse is sent as it stands."""

from __future__ import annotations

import contextlib
import select
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, ResponseReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError

from .variants import CLIENT

if TYPE_CHECKING:
    from .variants import Request

#: How long a response may take, in seconds.
PATIENCE = 15
#: How long its body may take, before the connection is given up.
BODY_PATIENCE = 0.2
#: The most bytes of a head that are read.
HEAD_BYTES = 65536
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
SETTINGS = 4
#: An option of Linux that holds for the next bytes only.
QUICK_ACKNOWLEDGEMENT: int | None = getattr(socket, "TCP_QUICKACK", None)


@dataclass(frozen=True)
class Response:
    """The head of a response; the status is 0 when the connection ended without one."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)

    def runs(self) -> tuple[str, int] | None:
        """Return which handler has run, and how often for this client; none when no handler ran."""
        name, equals, number = self.headers.get("x-runs", "").partition("=")
        return (name, int(number)) if equals else None

    def __str__(self) -> str:
        """Return the status and what the handler has said."""
        if not self.status:
            return "no response"
        told = self.headers.get("x-runs")
        return f"{self.status}, x-runs: {told}" if told else str(self.status)


class Connection:
    """A connection to an application that is kept as long as the application keeps it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.socket: socket.socket | None = None
        self.buffer = b""
        #: Whether the response to this request has begun.
        self.received = False
        self._speaks_http2: bool | None = None

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self.socket is not None:
            self.socket.close()
        self.socket = None
        self.buffer = b""

    def speaks_http2(self) -> bool:
        """Return whether the application answers a client that begins with HTTP/2."""
        if self._speaks_http2 is None:
            self._speaks_http2 = False
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), PATIENCE) as probe:
                probe.sendall(PREFACE)
                head = b""
                while len(head) < 9 and (some := probe.recv(9 - len(head))):
                    head += some
                self._speaks_http2 = len(head) == 9 and head[3] == SETTINGS and head[:2] == b"\0\0"
        return self._speaks_http2

    def ask(self, request: Request, client: str) -> Response:
        """Send a request of a client and read the response."""
        if request.version == "2":
            return ask_by_http2(self.port, request, client)
        reused = self.socket is not None
        try:
            self._open()
            return self._exchange(request, request.raw.replace(CLIENT.encode(), client.encode()))
        except (OSError, ValueError):
            # An application may close a connection that it kept while the next request is on its way.
            again = reused and not self.received
            self.close()
        return self.ask(request, client) if again else Response(0)

    def _open(self) -> None:
        # An application may have closed a connection that it kept.
        if self.socket is not None and (self.buffer or select.select([self.socket], [], [], 0)[0]):
            self.close()
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _exchange(self, request: Request, raw: bytes) -> Response:
        assert self.socket is not None
        self.received = False
        self.socket.sendall(raw)
        while True:
            status, version, headers = self._head()
            if status >= 200 or status == 101:
                break
        kept = version == "1.1" and request.version == "1.1" and "close" not in headers.get("connection", "").lower()
        if request.method.upper() != "HEAD" and status not in (101, 204, 304):
            kept = self._ends(headers) and kept
        if not kept or status == 101:
            self.close()
        return Response(status, headers)

    def _head(self) -> tuple[int, str, dict[str, str]]:
        while b"\r\n\r\n" not in self.buffer:
            if len(self.buffer) > HEAD_BYTES:
                raise ValueError("a head without an end")
            self._more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        protocol, status = first.split(" ")[:2]
        if not protocol.startswith("HTTP/1."):
            raise ValueError("no HTTP/1 response")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            name, value = name.strip().lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return int(status), protocol.removeprefix("HTTP/"), headers

    def _ends(self, headers: dict[str, str]) -> bool:
        """Read a body, of which nothing is of use; return whether another response can follow it."""
        assert self.socket is not None
        # To a method that was overridden by HEAD an application sends no body, though the client waits for one.
        self.socket.settimeout(BODY_PATIENCE)
        try:
            return self._body(headers)
        except (OSError, ValueError):
            return False
        finally:
            self.socket.settimeout(PATIENCE)

    def _body(self, headers: dict[str, str]) -> bool:
        """Read a body; return whether it ended before the connection."""
        if "chunked" in headers.get("transfer-encoding", "").lower():
            while True:
                size = int(self._line().split(b";")[0], 16)
                if size == 0:
                    while self._line():
                        pass
                    return True
                self._take(size + 2)
        if "content-length" in headers:
            self._take(int(headers["content-length"]))
            return True
        return False

    def _line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            self._more()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def _take(self, size: int) -> None:
        while len(self.buffer) < size:
            self._more()
        self.buffer = self.buffer[size:]

    def _more(self) -> None:
        assert self.socket is not None
        # A server that writes head and body apart may wait with the body for the acknowledgement of the head.
        if QUICK_ACKNOWLEDGEMENT is not None:
            self.socket.setsockopt(socket.IPPROTO_TCP, QUICK_ACKNOWLEDGEMENT, 1)
        some = self.socket.recv(65536)
        if not some:
            raise ValueError("the connection has ended")
        self.buffer += some
        self.received = True


def ask_by_http2(port: int, request: Request, client: str) -> Response:
    """Send a request over HTTP/2 without TLS, on a connection of its own, whose head is sent as it stands."""
    connection = H2Connection(H2Configuration(validate_outbound_headers=False))
    connection.initiate_connection()
    fields = [line.replace(CLIENT, client).partition(": ") for line in request.headers]
    head = [(":method", request.method), (":scheme", "http"), (":authority", request.host), (":path", request.target)]
    head += [(name.lower(), value) for name, _, value in fields]
    connection.send_headers(1, head, end_stream=request.body is None)
    if request.body is not None:
        connection.send_data(1, request.body, end_stream=True)
    response = Response(0)
    with contextlib.suppress(OSError, ProtocolError), socket.create_connection(("127.0.0.1", port), PATIENCE) as wire:
        wire.sendall(connection.data_to_send())
        while some := wire.recv(65536):
            for event in connection.receive_data(some):
                if isinstance(event, ResponseReceived):
                    headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
                    response = Response(int(headers[":status"]), headers)
                elif isinstance(event, StreamEnded | StreamReset | ConnectionTerminated):
                    return response
            wire.sendall(connection.data_to_send())
    return response
