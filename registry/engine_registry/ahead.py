"""Reads that do not need each other: at once where each is a request, in turn where it is none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine_registry.store import Stores

T = TypeVar("T")
# One act asks for a handful of things; what lists of blobs need they bring themselves.
_AT_ONCE = 16


class Ask(Protocol):
    """Says what will be needed; the answer is had, or its failure raised, by calling the result."""

    def __call__(self, act: Callable[[], T]) -> Callable[[], T]:
        """Begin to read, where the store is far; otherwise read when the answer is asked for."""
        ...


@contextmanager
def ahead(stores: Stores) -> Iterator[Ask]:
    """Ask for several things of a store before the first is needed.

    What nobody asks the answer of fails without a word. Answers may ask for earlier answers.
    """
    if not stores.is_far:
        yield cache  # type: ignore[misc]  # reads once, when called
        return
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="engine-registry-ahead") as pool:

        def ask(act: Callable[[], T]) -> Callable[[], T]:
            return pool.submit(act).result

        yield ask
