"""Runs the commands of docs/operating.md in their order, and compares what they write with the page.

The service, Redis and Prometheus are real ones on free ports, which stand for those that the page names. A block of
`text` is what the block of `sh` before it writes; times, digests and widths of columns may differ. The status of a
block is that of its last command: 0, unless the page says another one. `--write` writes the output into the page.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from load import ask
from own_prometheus import ROOT, Prometheus
from own_redis import Redis
from services import EXAMPLES, Service

PAGE = ROOT / "docs" / "operating.md"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
STATUS = re.compile(r"# .*exit status (\d+)$", re.MULTILINE)
#: How many requests each user has sent when the page begins.
REQUESTS = {"alice": 3, "bob": 85, "carol": 130}
#: How long Prometheus may take to see what a command has changed, in seconds.
PATIENCE = 60
#: How long Prometheus usually takes, in seconds.
SCRAPED = 4
#: What may differ, and what stands for it.
DIFFERS = [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"@\[[\d.]+\]", "@[TIME]"),
    (r"\b[0-9a-f]{12,64}\b", "DIGEST"),
    (r"(?<![\w/])(\d+(\.\d+)?(us|ms|s|m|h|d)\b)+", "DURATION"),
    (r"(?<![\w/])(\d+(\.\d+)?(us|ms|s|m|h|d))+\b", "DURATION"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"[-─]{3,}", "---"),
    (r"[ \t]+", " "),
]


@dataclass
class Block:
    """Commands with what they write, and where the text is in the page."""

    commands: str
    output: str | None
    place: tuple[int, int]
    line: int


def blocks(page: str) -> list[Block]:
    """Give the blocks of the page."""
    found = [
        Block(match[1], match[2], match.span(2), page.count("\n", 0, match.start()) + 1)
        for match in BLOCK.finditer(page)
    ]
    texts = page.count("\n```text\n")
    if texts != sum(block.output is not None for block in found):
        raise AssertionError(f"of {texts} blocks of text some do not follow commands")
    return found


def comparable(text: str) -> list[str]:
    """Give the lines without what may differ."""
    for pattern, name in DIFFERS:
        text = re.sub(pattern, name, text)
    return [line.strip() for line in text.strip().splitlines()]


class Shell:
    """Runs blocks of commands, one after the other in one folder, and keeps the variables that they export."""

    def __init__(self, folder: Path, here: dict[str, str]) -> None:
        self._folder = folder
        self._here = here
        path = f"{ROOT / 'target' / 'debug'}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "USER": "anna", "NO_COLOR": "1"}

    def run(self, commands: str) -> tuple[int, str]:
        """Give the status and all that was written, with the addresses of the page."""
        for named, real in self._here.items():
            commands = commands.replace(named, real)
        script = f"{commands}\nstatus=$?; env -0 >.environment; exit $status"
        done = subprocess.run(
            ["bash", "-uo", "pipefail", "-c", script],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        saved = (self._folder / ".environment").read_text().split("\0")
        self._environment = dict(variable.split("=", 1) for variable in saved if variable)
        output = done.stdout
        for named, real in self._here.items():
            output = output.replace(real, named)
        return done.returncode, output


def run(shell: Shell, block: Block) -> str:
    """Run a block, and again while it asks Prometheus and the answer is not yet that of the page."""
    wanted = STATUS.search(block.commands)
    asks_prometheus = "promtool query" in block.commands
    if asks_prometheus and "--write" in sys.argv:
        time.sleep(SCRAPED)
    end = time.monotonic() + PATIENCE
    while True:
        status, output = shell.run(block.commands)
        agrees = block.output is None or comparable(output) == comparable(block.output)
        if (agrees and status == int(wanted[1] if wanted else 0)) or "--write" in sys.argv:
            return output
        if not asks_prometheus or time.monotonic() > end:
            raise AssertionError(
                f"docs/operating.md:{block.line}: exit status {status}\n{block.commands}\nwrites\n{output}\n"
                f"and in the page\n{block.output}"
            )
        time.sleep(0.5)


def check_page() -> int:
    """Run all blocks, and give their number."""
    page = PAGE.read_text()
    outputs = []
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(Redis())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="polylimit-operating-")))
        (folder / "polylimit.toml").write_bytes((EXAMPLES / "configuration" / "polylimit.toml").read_bytes())
        url = f"{redis.url}?deadline=10s"
        service = stack.enter_context(Service("configuration/rust", url, "", POLYLIMIT_CONFIGURATION="store"))
        port = service.port()
        prometheus = stack.enter_context(Prometheus([port]))
        here = {
            "redis://localhost:6379": redis.url,
            "http://localhost:8084": f"http://127.0.0.1:{port}",
            "http://localhost:9090": prometheus.url,
        }
        shell = Shell(folder, here)
        for number, block in enumerate(blocks(page)):
            outputs.append((block, run(shell, block)))
            # The first block publishes the document.
            if number == 0:
                send_requests(port)
    if "--write" in sys.argv:
        for block, output in reversed(outputs):
            if block.output is not None:
                page = page[: block.place[0]] + output.rstrip() + "\n" + page[block.place[1] :]
        PAGE.write_text(page)
    return len(outputs)


def send_requests(port: int) -> None:
    """Send the requests that the page describes."""
    ask(port, "/configuration?version=1")
    for user, requests in REQUESTS.items():
        for _ in range(requests):
            status, body = ask(port, f"/?user={user}")
            if status not in {200, 429}:
                raise AssertionError(f"{user}: {status} {body}")


def check_alerts() -> None:
    """Every alert leads to its part of the page."""
    names = re.findall(r"^ +- alert: (\w+)$", ALERTS.read_text(), flags=re.MULTILINE)
    runbooks = re.findall(r"^ +runbook: (\S+)$", ALERTS.read_text(), flags=re.MULTILINE)
    parts = re.findall(r"^### (Polylimit\w+)$", PAGE.read_text(), flags=re.MULTILINE)
    wanted = [f"docs/operating.md#{name.lower()}" for name in names]
    if runbooks != wanted or parts != names:
        raise AssertionError(f"alerts: {names}, their runbooks: {runbooks}, parts of the page: {parts}")


def main() -> None:
    """Check both, and count them."""
    check_alerts()
    print(f"{check_page()} blocks of docs/operating.md run")
    print("test result: ok. 2 passed; 0 failed;")


if __name__ == "__main__":
    main()
