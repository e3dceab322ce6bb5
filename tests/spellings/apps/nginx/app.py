"""nginx in front of services, with the settings of deploy/proxies/nginx.conf and the rules of a document."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from typing import TYPE_CHECKING

from backend.programs import version_of
from backend.proxied import run

if TYPE_CHECKING:
    from backend.programs import Programs

SERVER = """
server {
  listen 127.0.0.1:%d;
  location / {
    auth_request /limit;
    error_page 403 = @limited;
    proxy_pass http://127.0.0.1:%d;
  }
  location = /limit {
    internal;
    proxy_pass http://127.0.0.1:%d/v1/forward?denied=403;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header X-Forwarded-For $remote_addr;
    proxy_set_header X-Forwarded-Method $request_method;
    proxy_set_header X-Forwarded-Uri $request_uri;
    proxy_set_header Content-Length "";
    proxy_pass_request_body off;
  }
  location @limited {
    return 429;
  }
}
"""


def command(programs: Programs, ports: list[tuple[int, int, int]]) -> list[str]:
    """Give the command of nginx."""
    folder = programs.folder
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = " ".join(f"{name}_temp_path {folder}/{name};" for name in names)
    servers = "".join(SERVER % site for site in ports)
    whole = (
        f"daemon off; pid {folder}/pid; error_log stderr; events {{}} http {{ access_log off; {temporary} {servers} }}"
    )
    return ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(programs.write("nginx.conf", whole))]


run("nginx", version_of("nginx", "-v"), command)
