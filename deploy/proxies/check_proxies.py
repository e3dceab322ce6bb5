"""Runs nginx and Caddy with the files of this folder, for real, in front of a service and with `polylimit serve`.

Ports are free ones in place of those in the files. Clients are addresses of this host, 127.0.0.1 and on. systemd reads
the unit of the server. Ends in cargo's form.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
POLYLIMIT = os.environ.get("POLYLIMIT", str(ROOT / "target/debug/polylimit"))
LIMITS = 'polylimit = 1\n[policies.api]\nquotas = "2/day fixed_window"\n'
#: How long a program may take to start or to end, in seconds.
PATIENCE = 60


def free_port() -> int:
    """Return a port that is free now, below those of outgoing connections, which could take it meanwhile."""
    while True:
        port = random.randrange(10_000, 20_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@dataclass
class Reply:
    """An answer to a client."""

    status: int
    fields: dict[str, str]
    body: str


def ask(port: int, client: str = "127.0.0.1", path: str = "/") -> Reply:
    """Send a request from an address."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE, source_address=(client, 0))
    with contextlib.closing(connection):
        connection.request("POST", path, body="body of the client")
        response = connection.getresponse()
        fields = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, fields, response.read().decode())


class Shop(http.server.BaseHTTPRequestHandler):
    """The service behind the proxies: it sends back what it gets."""

    def do_POST(self) -> None:
        """Answer with the path, the body, and the fields of a limit that the proxy has passed on; 403 for one path."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(403 if self.path == "/forbidden" else 200)
        for name in ("RateLimit-Policy", "RateLimit"):
            if name in self.headers:
                self.send_header(name, self.headers[name])
        self.end_headers()
        self.wfile.write(self.path.encode() + b": " + body)

    def log_message(self, *arguments: object) -> None:
        """Write no log."""


@contextlib.contextmanager
def program(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that listens on a port, to the end of the block."""
    with tempfile.TemporaryFile() as log:
        running = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            since = time.monotonic()
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
                if running.poll() is not None or time.monotonic() - since > PATIENCE:
                    log.seek(0)
                    raise RuntimeError(f"{command[0]} does not listen: {log.read().decode()}")
                time.sleep(0.02)
            yield running
        finally:
            running.terminate()
            running.wait(PATIENCE)


@dataclass
class Site:
    """A proxy in front of the service, and the server that it asks."""

    port: int
    limits: subprocess.Popen[bytes]


@contextlib.contextmanager
def site(proxy: Callable[[Path, str], list[str]], file: str) -> Iterator[Site]:
    """Start everything. `proxy` gives the command, by a folder of its own and the text of the file with free ports."""
    front, limits_port = free_port(), free_port()
    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    with contextlib.ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        running.callback(service.shutdown)
        document = folder / "limits.toml"
        document.write_text(LIMITS)
        listener = f"http://127.0.0.1:{limits_port}"
        serve = [POLYLIMIT, "--policies", str(document), "serve", "--listen", listener, "--admin", "off"]
        limits = running.enter_context(program([*serve, "--trust", "127.0.0.0/8"], limits_port))
        text = (HERE / file).read_text()
        ports = {"8080": front, "8180": limits_port, "9000": service.server_port}
        text = re.sub(r"\b(8080|8180|9000)\b", lambda found: str(ports[found[0]]), text)
        running.enter_context(program(proxy(folder, text), front))
        yield Site(front, limits)


def nginx(folder: Path, text: str) -> list[str]:
    """Give the command of nginx, with the file inside of the block `http`."""
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = " ".join(f"{name}_temp_path {folder}/{name};" for name in names)
    whole = (
        f"daemon off; pid {folder}/pid; error_log stderr; events {{}} http {{ access_log off; {temporary}\n{text} }}"
    )
    (folder / "nginx.conf").write_text(whole)
    return ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, text: str) -> list[str]:
    """Give the command of Caddy."""
    (folder / "Caddyfile").write_text("{\n\tadmin off\n\tauto_https off\n}\n" + text)
    os.environ["XDG_DATA_HOME"] = os.environ["XDG_CONFIG_HOME"] = str(folder)
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


def check_limits(at: Site) -> None:
    """Two requests of each client are passed on with what is left, and the third one is denied."""
    for client in ("127.0.0.1", "127.0.0.2"):
        for left in (1, 0):
            admitted = ask(at.port, client, "/orders?cost=0&key=header:x")
            assert admitted.status == 200, admitted
            assert admitted.body == "/orders?cost=0&key=header:x: body of the client", admitted
            assert admitted.fields["ratelimit-policy"] == '"api";q=2;w=86400', admitted
            assert admitted.fields["ratelimit"].startswith(f'"api";r={left};t='), admitted
        denied = ask(at.port, client)
        assert denied.status == 429, denied
        assert 0 < int(denied.fields["retry-after"]) <= 86_400, denied
        assert denied.fields["ratelimit"].startswith('"api";r=0;t='), denied
        assert "orders" not in denied.body and denied.body, denied


def check_service(at: Site) -> None:
    """Ask for what the service itself refuses: its 403 stays one."""
    refused = ask(at.port, "127.0.0.3", "/forbidden")
    assert refused.status == 403 and refused.body.startswith("/forbidden"), refused


def check_away(at: Site) -> None:
    """Without the server, requests are passed on."""
    at.limits.terminate()
    at.limits.wait(PATIENCE)
    for _ in range(4):
        passed = ask(at.port, "127.0.0.4", "/away")
        assert passed.status == 200 and passed.body == "/away: body of the client", passed


def check_unit() -> None:
    """Let systemd read the unit of the server."""
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / "polylimit.service"
        unit.write_text(
            (ROOT / "deploy/server/polylimit.service").read_text().replace("/usr/local/bin/polylimit", POLYLIMIT)
        )
        command = ["systemd-analyze", "verify", "--man=no", str(unit)]
        verified = subprocess.run(command, check=False, capture_output=True, text=True)
        told = verified.stdout + verified.stderr
        assert verified.returncode == 0 and not told.strip(), told


def main() -> int:
    """Run every check."""
    counts = {True: 0, False: 0}

    def case(name: str, check: Callable[[], None]) -> None:
        try:
            check()
            passed = True
        except Exception:
            passed = False
            traceback.print_exc()
        counts[passed] += 1
        print(f"test {name} ... {'ok' if passed else 'FAILED'}", flush=True)

    for name, proxy, file in (("nginx", nginx, "nginx.conf"), ("caddy", caddy, "Caddyfile")):
        if shutil.which(name) is None:
            raise RuntimeError(f"there is no {name}: tests/setup installs it")
        with site(proxy, file) as at:
            for what, check in (("limits", check_limits), ("service", check_service), ("away", check_away)):
                case(f"{name}: {what}", lambda check=check: check(at))
    case("unit of systemd", check_unit)
    verdict = "FAILED" if counts[False] else "ok"
    print(f"test result: {verdict}. {counts[True]} passed; {counts[False]} failed;")
    return 1 if counts[False] else 0


if __name__ == "__main__":
    sys.exit(main())
