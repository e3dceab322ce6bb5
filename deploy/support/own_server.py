"""Runs `polylimit serve` as the files of deploy/server start it, with free ports and a folder of its own."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import itertools
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
SERVER = ROOT / "deploy" / "server"
POLYLIMIT = os.environ.get("POLYLIMIT", str(ROOT / "target/debug/polylimit"))
LIMITS = 'polylimit = 1\n[policies.api]\nquotas = "2/day fixed_window"\n'
WORD = "admin of the test"
PATIENCE = 60


class UnixConnection(http.client.HTTPConnection):
    """A connection over a socket of the file system."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self._path)


def ask(address: str, path: str, body: dict[str, object] | None = None) -> tuple[int, bytes]:
    """Send a request to a listener, and return the status and the body of its answer."""
    if address.startswith("unix:"):
        connection: http.client.HTTPConnection = UnixConnection(address.removeprefix("unix:"))
    elif address.startswith("https:"):
        port = int(address.rsplit(":", 1)[1])
        # The certificate of a test is its own authority.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=context)
    else:
        port = int(address.rsplit(":", 1)[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    with contextlib.closing(connection):
        fields = {"authorization": f"Bearer {WORD}"}
        method, sent = ("GET", None) if body is None else ("POST", json.dumps(body))
        connection.request(method, path, body=sent, headers=fields)
        response = connection.getresponse()
        return response.status, response.read()


@dataclass
class Server:
    """A running server, with its listeners in the order of its arguments."""

    process: subprocess.Popen[str]
    listeners: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def follow(self) -> None:
        """Read what the server writes, to its end."""
        for line in self.process.stderr or []:
            self.lines.append(line)
            found = re.search(r'listening on ([^\s"]+)', line)
            if found:
                self.listeners.append(found[1])


def stand_in(word: str, folder: Path) -> str:
    """Give an argument with a free port and a place in the folder; any other absolute path is an error."""
    word = re.sub(r"^((?:http|resp)s?://[^/]+):\d+$", r"\1:0", word)
    replaced = re.sub(r"/(?:etc|run)/polylimit/", f"{folder}/", word)
    if replaced == word and re.search(r"(^|:)/(?!/)", word):
        raise AssertionError(f"there is no stand-in for {word}")
    return replaced


def certify(folder: Path, days: int) -> None:
    """Write a certificate for localhost, and its key, into the folder."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", str(days)]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    subprocess.run(command, check=True, capture_output=True)


@contextlib.contextmanager
def running(
    arguments: list[str],
    environment: dict[str, str] | None = None,
    *,
    prepare: Callable[[Path], None] = lambda _: None,
) -> Iterator[tuple[Server, Path]]:
    """Run the program with these arguments, wait until it listens, and let SIGTERM end it with the status 0.

    Its folder has a document, a file of callers, and what ``prepare`` adds.
    """
    with tempfile.TemporaryDirectory(prefix="polylimit-deploy-") as name:
        folder = Path(name)
        (folder / "limits.toml").write_text(LIMITS)
        digest = hashlib.sha256(WORD.encode()).hexdigest()
        (folder / "tokens").write_text(f"admin test sha256:{digest}\n")
        prepare(folder)
        command = [POLYLIMIT, *(stand_in(word, folder) for word in arguments)]
        expected = sum(word in ("--listen", "--admin") for word in arguments) + ("--admin" not in arguments)
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
        )
        server = Server(process)
        reader = threading.Thread(target=server.follow, daemon=True)
        reader.start()
        try:
            until(lambda: len(server.listeners) == expected, server)
            yield server, folder
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, server.lines
        finally:
            process.kill()
            process.wait()


def until(holds: Callable[[], bool], server: Server) -> None:
    """Wait until something holds."""
    since = time.monotonic()
    while not holds():
        if server.process.poll() is not None or time.monotonic() - since > PATIENCE:
            raise AssertionError(f"the server does not do it: {server.lines}")
        time.sleep(0.02)


def port_of(arguments: list[str], option: str) -> int:
    """Give the port of the last argument of an option over HTTP."""
    places = [after for word, after in itertools.pairwise(arguments) if word == option and "://" in after]
    return int(places[-1].rsplit(":", 1)[1])


def check_decisions(address: str) -> None:
    """Two of three requests are admitted, as the document says."""
    key: dict[str, object] = {"policy": "api", "key": f"client of {address}"}
    allowed = [json.loads(ask(address, "/v1/check", key)[1])["allowed"] for _ in range(3)]
    assert allowed == [True, True, False], allowed


def run_checks(checks: dict[str, Callable[[], None]]) -> int:
    """Run every check, count the results in cargo's form, and give the exit status."""
    counts = {True: 0, False: 0}
    for name, check in checks.items():
        try:
            check()
            passed = True
        except Exception:
            passed = False
            traceback.print_exc()
        counts[passed] += 1
        print(f"test server as in the {name} ... {'ok' if passed else 'FAILED'}", flush=True)
    verdict = "FAILED" if counts[False] else "ok"
    print(f"test result: {verdict}. {counts[True]} passed; {counts[False]} failed;")
    return 1 if counts[False] else 0
