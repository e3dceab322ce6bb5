"""The error that a program gets when the native module does not load."""

import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_ZIPPED = (
    "a native module does not load from a zip: install polylimit into a folder, or pack with a tool that unpacks it "
    "when the program starts, such as shiv"
)
_MISSING = (
    "the folder has no file with one of the endings {suffixes}: install the wheel of this platform and interpreter"
)
_REFUSED = (
    "the file is there, but the system does not load it: it must be complete and lie on a file system that allows "
    "programs (mounted without noexec), and the system needs the C library that the wheel's name says"
)


def explained(error: ImportError, package: str) -> ImportError:
    """Return the error of the package in this file with what was tried and what to do."""
    if not isinstance(error, ModuleNotFoundError):
        # Python itself refuses some, such as a second interpreter; the system's messages begin with the file.
        advice = _REFUSED if ".so" in str(error) else ""
    elif not Path(package).exists():
        advice = _ZIPPED
    else:
        advice = _MISSING.format(suffixes=", ".join(EXTENSION_SUFFIXES))
    version = ".".join(map(str, sys.version_info[:2]))
    running = f"{sys.implementation.name} {version} on {sysconfig.get_platform()}"
    text = f"polylimit cannot load its native module for {running}: {error}"
    return type(error)(f"{text}: {advice}" if advice else text, name=error.name, path=error.path)
