"""Starts the server as the files of deploy/server start it: under systemd, in the image, and in the pod of Kubernetes.

The command of each file is read from it and run, with free ports and a folder of its own in place of what it names;
what the file says beside it, such as ports and probes, has to fit. systemd, a container runtime and Kubernetes
themselves are not run. Ends in cargo's form.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import itertools
import json
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from own_redis import Redis

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
            found = re.search(r"listening on (\S+)", line)
            if found:
                self.listeners.append(found[1])


def stand_in(word: str, folder: Path) -> str:
    """Give an argument with a free port and a place in the folder; any other absolute path is an error."""
    word = re.sub(r"^((?:http|resp)s?://[^/]+):\d+$", r"\1:0", word)
    replaced = re.sub(r"/(?:etc|run)/polylimit/", f"{folder}/", word)
    if replaced == word and re.search(r"(^|:)/(?!/)", word):
        raise AssertionError(f"there is no stand-in for {word}")
    return replaced


@contextlib.contextmanager
def running(arguments: list[str], environment: dict[str, str] | None = None) -> Iterator[tuple[Server, Path]]:
    """Run the program with these arguments, wait until it listens, and let SIGTERM end it with the status 0."""
    with tempfile.TemporaryDirectory(prefix="polylimit-deploy-") as name:
        folder = Path(name)
        (folder / "limits.toml").write_text(LIMITS)
        digest = hashlib.sha256(WORD.encode()).hexdigest()
        (folder / "tokens").write_text(f"admin test sha256:{digest}\n")
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


def check_unit() -> None:
    """Run the command of the unit of systemd: a socket for a group, a port, and signals."""
    text = (SERVER / "polylimit.service").read_text().replace("\\\n", " ")
    command = shlex.split(re.search(r"^ExecStart=(.+)$", text, re.MULTILINE)[1])
    assert command[0] == "/usr/local/bin/polylimit", command
    drain = int(re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)[1])
    assert drain > 10, "systemd ends the server before --drain is over"
    assert "ExecReload=/bin/kill -HUP $MAINPID" in text
    with running(command[1:]) as (server, folder):
        unix, data, admin = server.listeners
        check_decisions(unix)
        check_decisions(data)
        mode = stat.S_IMODE((folder / "http.sock").stat().st_mode)
        assert mode == 0o660, oct(mode)
        assert ask(admin, "/readyz")[0] == ask(admin, "/v1/policies")[0] == 200
        server.process.send_signal(signal.SIGHUP)
        # The document is followed; SIGHUP only has to leave the server as it is.
        (folder / "next").write_text(LIMITS.replace("2/day", "7/day"))
        (folder / "next").rename(folder / "limits.toml")
        peek: dict[str, object] = {"policy": "api", "key": "k"}
        until(lambda: json.loads(ask(data, "/v1/peek", peek)[1])["limit"] == 7, server)


def check_image() -> None:
    """Run the command of the image, and compare the port that it tells."""
    text = (SERVER / "Dockerfile").read_text()
    entry, command = (
        json.loads(re.search(rf"^{name} (\[.+\])$", text, re.MULTILINE)[1]) for name in ("ENTRYPOINT", "CMD")
    )
    assert entry == ["/usr/local/bin/polylimit"], entry
    exposed = int(re.search(r"^EXPOSE (\d+)$", text, re.MULTILINE)[1])
    assert exposed == port_of(command, "--listen"), command
    features = re.search(r"--features (\S+)", text)[1].split(",")
    manifest = (ROOT / "tools/cli/Cargo.toml").read_text()
    missing = [name for name in features if not re.search(rf"^{name} = \[", manifest, re.MULTILINE)]
    assert not missing, f"polylimit-cli has no feature {missing}"
    with running(command) as (server, _):
        data, admin = server.listeners
        check_decisions(data)
        assert ask(data, "/readyz")[0] == ask(admin, "/metrics")[0] == 200


def check_pod() -> None:
    """Run the command of the pod, with its probes, its ports, and limits that are published in Redis."""
    text = (SERVER / "kubernetes.yaml").read_text()
    arguments = json.loads(re.search(r"^ +args: (\[.+?\])$", text, re.MULTILINE | re.DOTALL)[1])
    variables = re.findall(r"- name: (POLYLIMIT_\w+)", text)
    assert variables == ["POLYLIMIT_STORE"], variables
    admin_port = int(re.search(r"name: admin, containerPort: (\d+)", text)[1])
    assert admin_port == port_of(arguments, "--admin"), arguments
    told = int(re.search(r'LIMITS, value: "http://127\.0\.0\.1:(\d+)"', text)[1])
    assert told == port_of(arguments, "--listen"), arguments
    probes = re.findall(r"(\w+)Probe:\n +httpGet: \{path: (\S+), port: admin\}", text)
    assert sorted(name for name, _ in probes) == ["liveness", "readiness", "startup"], probes
    with Redis() as redis:
        environment = {"POLYLIMIT_STORE": f"{redis.url}?deadline=5s"}
        with running(arguments, environment) as (server, folder):
            data, admin = server.listeners
            # Until a document is published, the pod lives and is not ready.
            assert {name: ask(admin, path)[0] for name, path in probes} == {
                "startup": 503,
                "liveness": 200,
                "readiness": 503,
            }
            put = ["policies", "put", str(folder / "limits.toml"), "--expect", "0", "--why", "test"]
            subprocess.run([POLYLIMIT, *put], check=True, capture_output=True, env={**os.environ, **environment})
            until(lambda: all(ask(admin, path)[0] == 200 for _, path in probes), server)
            check_decisions(data)


def main() -> int:
    """Run every check."""
    counts = {True: 0, False: 0}
    checks = {"unit of systemd": check_unit, "image": check_image, "pod of Kubernetes": check_pod}
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


if __name__ == "__main__":
    sys.exit(main())
