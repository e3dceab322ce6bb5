"""An application of `apps`: its program, and the sites that it opens."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

APPS = Path(__file__).resolve().parent.parent / "apps"
#: How long an application may take to start, which may compile it, and to end, in seconds.
START = 300
END = 10


class CannotStartError(Exception):
    """An application did not start, and why."""


class SkippedError(Exception):
    """An application has said why it cannot be examined here."""


@dataclass(frozen=True)
class Site:
    """One way of attaching a limit, on a port of its own; `handlers` as the application lists them."""

    name: str
    port: int
    handlers: tuple[str, ...]


@dataclass
class Application:
    """A running application."""

    sites: list[Site] = field(default_factory=list)
    #: Framework and version, as the framework itself reports it.
    versions: list[tuple[str, str]] = field(default_factory=list)
    #: What the application says about itself for the page of frameworks: `note route yes`.
    notes: dict[str, str] = field(default_factory=dict)


def applications() -> list[str]:
    """Return the names of all applications."""
    return sorted(start.parent.name for start in APPS.glob("*/start"))


def versions_of(name: str) -> list[str]:
    """Return the versions of an application: those in its file `versions`, or oldest and newest."""
    file = APPS / name / "versions"
    return file.read_text().split() if file.exists() else ["oldest", "newest"]


@contextlib.contextmanager
def running(name: str, version: str, defect: str | None) -> Iterator[Application]:
    """Start an application, and end it with the block."""
    environment = dict(os.environ)
    if defect:
        environment["POLYLIMIT_SPELLINGS_DEFECT"] = defect
    # Servlet containers make folders that they do not remove.
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        environment["TMPDIR"] = temporary
        process = subprocess.Popen(
            [str(APPS / name / "start"), version],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
        try:
            yield read_lines(process, log)
        finally:
            end(process)


def read_lines(process: subprocess.Popen[bytes], log: IO[bytes]) -> Application:
    """Read what an application prints until it is ready."""
    application = Application()

    def why(reason: str) -> CannotStartError:
        log.seek(0)
        errors = log.read().decode(errors="replace").strip().splitlines()[-20:]
        return CannotStartError("\n    ".join([reason, *errors]))

    try:
        for line in lines_of(process):
            if line == "ready":
                return application
            take_line(application, line)
    except ValueError as mistake:
        raise why(str(mistake)) from None
    raise why("ended before it was ready")


def lines_of(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Read the lines that a program prints, until it ends or takes too long."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    buffer = b""
    until = time.monotonic() + START
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, until - time.monotonic())):
                raise ValueError(f"not ready after {START} s")
            some = process.stdout.read(65536)
            if some == b"":
                return
            *lines, buffer = (buffer + (some or b"")).split(b"\n")
            yield from (line.decode() for line in lines)


def take_line(application: Application, line: str) -> None:
    """Take what a line says about an application."""
    match line.split():
        case ["listening", site, port, handlers]:
            application.sites.append(Site(site, int(port), tuple(handlers.split(","))))
        case ["version", framework, version]:
            application.versions.append((framework, version))
        case ["note", subject, *text]:
            application.notes[subject] = " ".join(text)
        case ["skipped:", *reason]:
            raise SkippedError(" ".join(reason))
        case _:
            raise ValueError(f"unknown line: {line!r}")


def end(process: subprocess.Popen[bytes]) -> None:
    """End an application by closing its input, and the group of its processes if that does not suffice."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END)
    # Programs that it has started, if any are left.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(END)
    process.stdout.close()
