"""The program ``polylimit``, which lies in this folder; ``pip install "polylimit[cli]"`` installs it as a command."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

PROGRAM = Path(__file__).with_name("polylimit.exe" if os.name == "nt" else "polylimit")


def main() -> NoReturn:
    """Run the program with the arguments of this process, in place of this process."""
    command = ["polylimit", *sys.argv[1:]]
    if os.name != "nt":
        os.execv(PROGRAM, command)
    # A process of Windows cannot become another program. Ctrl-C reaches both, and the program decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(subprocess.call(command, executable=PROGRAM))
