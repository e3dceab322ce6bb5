"""Caddy in front of services, with the settings of deploy/proxies/Caddyfile and the rules of a document."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from typing import TYPE_CHECKING

from backend.programs import version_of
from backend.proxied import run

if TYPE_CHECKING:
    from backend.programs import Programs

SITE = """
http://:%d {
	bind 127.0.0.1
	route {
		forward_auth 127.0.0.1:%d {
			uri /v1/forward?denied=429
		}
		reverse_proxy 127.0.0.1:%d
	}
}
"""


def command(programs: Programs, ports: list[tuple[int, int, int]]) -> list[str]:
    """Give the command of Caddy."""
    os.environ["XDG_DATA_HOME"] = os.environ["XDG_CONFIG_HOME"] = str(programs.folder)
    sites = "".join(SITE % (port, asked, service) for port, service, asked in ports)
    path = programs.write("Caddyfile", "{\n\tadmin off\n\tauto_https off\n}\n" + sites)
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(path)]


run("caddy", version_of("caddy", "version"), command)
