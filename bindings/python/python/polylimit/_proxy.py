"""An object that stands for another one, which belongs to a framework."""

from __future__ import annotations

from typing import Any


class Proxy:
    """Has the attributes of its target, and those in the ``__slots__`` of a subclass as its own."""

    __slots__ = ("_target",)

    def __init__(self, target: Any) -> None:
        object.__setattr__(self, "_target", target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(self._target, name, value)

    def __bool__(self) -> bool:
        return bool(self._target)

    def __aiter__(self) -> Any:
        return self._target.__aiter__()
