"""Tags: keys and values on objects, indexed at once by the agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Union

from . import _native
from .errors import NotFoundError

TagValue = Union[bool, int, float, str, list[int], list[float]]


def plain(value: Any) -> Any:
    """NumPy's scalars and arrays as Python's."""
    return value.tolist() if hasattr(value, "tolist") else value


class Tags(MutableMapping[str, TagValue]):
    """The tags of one object, as a mapping. Every look asks the agent, every change is done when the call returns.

    Values are bool, int (64 bits), float, str, and lists of numbers. Setting a key again replaces its value.
    """

    def __init__(self, session: _native.Session, name: str) -> None:
        self._session = session
        self._name = name

    def __getitem__(self, key: str) -> TagValue:
        try:
            return self._session.tags(self._name)[key]
        except KeyError:
            raise NotFoundError(f"`{self._name}` has no tag `{key}`") from None

    def __setitem__(self, key: str, value: TagValue) -> None:
        self._session.put_tags(self._name, {key: plain(value)})

    def __delitem__(self, key: str) -> None:
        self._session.delete_tag(self._name, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._session.tags(self._name))

    def __len__(self) -> int:
        return len(self._session.tags(self._name))

    def items(self):
        return self._session.tags(self._name).items()

    def values(self):
        return self._session.tags(self._name).values()

    def update(self, other: Any = (), /, **more: TagValue) -> None:
        """Sets several tags at once: all, or none."""
        given = dict(other, **more) if not isinstance(other, Mapping) else {**other, **more}
        if given:
            self._session.put_tags(self._name, {key: plain(value) for key, value in given.items()})

    def __repr__(self) -> str:
        return f"<tags of `{self._name}`: {self._session.tags(self._name)!r}>"
