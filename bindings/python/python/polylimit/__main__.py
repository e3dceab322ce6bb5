"""The command ``polylimit``, also as ``python -m polylimit``: it runs the program of the package ``polylimit-cli``."""

import sys

#: What a shell returns for a command that it does not find; no status of the program.
NOT_FOUND = 127


def main() -> int:
    """Run the command that the arguments of this process name, in place of this process."""
    try:
        from polylimit_cli import main as run
    except ModuleNotFoundError as error:
        if error.name != "polylimit_cli":
            raise
        sys.stderr.write('polylimit: the command line is not installed: pip install "polylimit[cli]"\n')
        return NOT_FOUND
    return run()


if __name__ == "__main__":
    sys.exit(main())
