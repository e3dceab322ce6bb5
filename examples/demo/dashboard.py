"""The dashboard of `polylimit serve`, next to the services of the demo."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from followers import Source

DEBUG = Path(__file__).resolve().parent.parent.parent / "target" / "debug" / "polylimit"
PROGRAM = os.environ.get("POLYLIMIT_PROGRAM", str(DEBUG))
LISTENS = re.compile(r"listening on (http://\S+)")
PATIENCE = 60


def check_page(address: str) -> None:
    """Raise an error unless the address has the page of the dashboard."""
    with urllib.request.urlopen(f"{address}/", timeout=PATIENCE) as response:
        page = response.read().decode()
        if response.status != HTTPStatus.OK or "<title>polylimit</title>" not in page:
            raise RuntimeError(f"{address}/ answers {response.status} with {page[:200]}")


@contextlib.contextmanager
def dashboard(source: Source) -> Iterator[str]:
    """Yield the address of a dashboard that shows a store and its document."""
    command = [PROGRAM, "serve", "--listen", "http://127.0.0.1:0", "--admin", "http://127.0.0.1:0", "--drain", "1s"]
    if source.configuration.startswith("file:"):
        command += ["--policies", source.configuration.removeprefix("file:")]
    # Other users of the host could read the password of a URL among the arguments.
    environment = {**os.environ, "POLYLIMIT_STORE": source.url}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            # The listener for operators is the last one.
            lines = [process.stderr.readline() for _ in range(2)]
            found = LISTENS.search(lines[-1])
            if found is None:
                raise RuntimeError(f"the dashboard does not start: {' '.join(lines).strip()}")
            check_page(found[1])
            yield found[1]
        finally:
            process.terminate()
            process.wait(PATIENCE)
