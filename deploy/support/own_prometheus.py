"""A Prometheus server on a free port of 127.0.0.1, which scrapes services every second."""

from __future__ import annotations

import contextlib
import json
import math
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
#: A span of time in the rules and the dashboard: long enough for two scrapes of a busy machine.
SPAN = "6s"
#: How long the server may take to start, in seconds.
PATIENCE = 60

#: Labels and value of a series.
Series = tuple[dict[str, str], float]


def free_port() -> int:
    """Return a port that is free now, below those of outgoing connections, which could take it meanwhile."""
    while True:
        port = random.randrange(10_000, 20_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def hasty_rules() -> str:
    """Give the alerts with short spans, and without the time for which they have to hold."""
    text = RULES.read_text()
    text = re.sub(r"\[\d+m\]", f"[{SPAN}]", text)
    return re.sub(r"^ +for: \d+m\n", "", text, flags=re.MULTILINE)


class Prometheus:
    """A server that runs until the end of the block. The targets are one job, `shop`."""

    def __init__(self, ports: list[int]) -> None:
        program = shutil.which("prometheus")
        if program is None:
            raise RuntimeError("there is no prometheus: tests/setup installs it")
        self._folder = tempfile.TemporaryDirectory(prefix="polylimit-prometheus-")
        folder = Path(self._folder.name)
        (folder / "alerts.yml").write_text(hasty_rules())
        targets = ", ".join(f"'127.0.0.1:{port}'" for port in ports)
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            "rule_files: [alerts.yml]\n"
            f"scrape_configs: [{{job_name: shop, static_configs: [{{targets: [{targets}]}}]}}]\n"
        )
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def __enter__(self) -> Prometheus:
        end = time.monotonic() + PATIENCE
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > end:
                self._log.seek(0)
                log = self._log.read().decode(errors="replace")
                self.__exit__()
                raise RuntimeError(f"prometheus is not ready:\n{log}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        self._folder.cleanup()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def _get(self, path: str, **query: str) -> Any:  # noqa: ANN401 what JSON can hold
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            message = json.load(error).get("error", "")
            raise AssertionError(f"{query}: {message}") from error

    def query(self, expression: str) -> list[Series]:
        """Give the series of an expression that have a number now."""
        data = self._get("query", query=expression)
        series = [(one["metric"], float(one["value"][1])) for one in data["result"]]
        return [(labels, value) for labels, value in series if not math.isnan(value)]

    def label_values(self, metric: str, label: str) -> list[str]:
        """Give the values of a label."""
        values: list[str] = self._get(f"label/{label}/values", **{"match[]": metric})
        return values

    def alerts(self) -> dict[str, str]:
        """Give the alerts that fire, with their summaries."""
        alerts = self._get("alerts")["alerts"]
        return {one["labels"]["alertname"]: one["annotations"]["summary"] for one in alerts if one["state"] == "firing"}
