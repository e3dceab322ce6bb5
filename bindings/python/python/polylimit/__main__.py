"""The command line tool ``polylimit``, also as ``python -m polylimit``; ``polylimit --help`` lists its commands."""

import signal
import sys

from polylimit._core import run_command


def main() -> int:
    """Run the command that the arguments of this process name, and return its exit status."""
    # Python's own handler would raise KeyboardInterrupt only after the command. With the default action, Ctrl-C ends
    # the process at once, and a shell sees that it was interrupted. A process that ignores the signal still does.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_command(["polylimit", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
