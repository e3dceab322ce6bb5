"""Refuses versions of frameworks that an integration does not support, with a sentence, when it is imported."""

from __future__ import annotations

import re
from importlib import metadata


def require(package: str, oldest: str, extra: str) -> None:
    """Raise ``ImportError`` if a package is installed in a version that is older than this one.

    A package without metadata, as in an application that was packed into one file, is taken as it is.
    """
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        return
    if is_older(found, oldest):
        raise ImportError(
            f"{package} {found} is installed, allowed is {oldest} or newer: upgrade it, such as by "
            f'pip install --upgrade "polylimit[{extra}]"',
            name=package.lower(),
        )


def is_older(version: str, than: str) -> bool:
    """Whether a version comes before another one."""
    return _numbers(version) < _numbers(than)


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(number) for number in found.group().split(".")] if found else []
    # 4.2 and 4.2.0 are the same.
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
