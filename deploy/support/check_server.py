"""Starts the server as systemd and the image start it.

The command of each file is read from it and run, with free ports and a folder of its own in place of what it names;
what else the file says, such as ports and the health check, has to fit. systemd and a container runtime
themselves are not run. Ends in cargo's form.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import stat
import subprocess
import sys

from own_server import (
    LIMITS,
    PATIENCE,
    POLYLIMIT,
    ROOT,
    SERVER,
    ask,
    check_decisions,
    port_of,
    run_checks,
    running,
    until,
)


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
    """Run the command of the image, and compare the port that it prints."""
    text = (SERVER / "Dockerfile").read_text()
    entry, command = (
        json.loads(re.search(rf"^{name} (\[.+\])$", text, re.MULTILINE)[1]) for name in ("ENTRYPOINT", "CMD")
    )
    assert entry == ["/usr/local/bin/polylimit"], entry
    health = json.loads(re.search(r"^HEALTHCHECK .*CMD (\[.+\])$", text, re.MULTILINE)[1])
    assert health[0] == entry[0], health
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
        # The command names no --admin, and the health check asks where it is by default.
        assert probe(health) == 0, health
    assert probe(health) == 1, health


def probe(command: list[str]) -> int:
    """Run the command of a health check, and give its status."""
    return subprocess.run([POLYLIMIT, *command[1:]], capture_output=True, check=False, timeout=PATIENCE).returncode


if __name__ == "__main__":
    sys.exit(run_checks({"unit of systemd": check_unit, "image": check_image}))
