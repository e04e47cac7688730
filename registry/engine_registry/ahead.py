"""Reads that do not need each other: at once where each is a request, in turn where it is none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine_registry.store import Stores

S = TypeVar("S")
T = TypeVar("T")
# An engine of two dozen files is looked at in one go; the client keeps 64 connections.
_AT_ONCE = 32


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


def read_all(stores: Stores, act: Callable[[S], T], items: Iterable[S]) -> list[Callable[[], T]]:
    """`act` on each of `items`, as asked ahead: in order, what gives the answer or its failure."""
    with ahead(stores) as ask:
        return [ask(partial(act, item)) for item in items]
