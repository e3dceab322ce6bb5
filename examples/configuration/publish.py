"""Publishes a document to Redis: publish.py FILE."""

import getpass
import os
import sys
from pathlib import Path

from polylimit import Limiter, PolylimitError

try:
    with Limiter(os.environ.get("REDIS_URL") or "redis://127.0.0.1", configuration="store") as limiter:
        status = limiter.admin().publish(Path(sys.argv[1]).read_text(), by=getpass.getuser())
except PolylimitError as error:
    sys.exit(f"not published: {error}")
print(f"published version {status.version}, {status.digest[:12]}")
