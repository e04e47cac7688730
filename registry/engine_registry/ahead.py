"""Reads that do not need each other: at once where each is a request, in turn where it is none."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine_registry.store import Stores

S = TypeVar("S")
T = TypeVar("T")
# An engine of two dozen files is looked at in one go; the client keeps 64 connections.
_AT_ONCE = 32
# Of very many: readers, and what each takes at a time. A bucket answers in about 10 ms. On a disk
# one reader works while the other waits; more of them take turns at the interpreter's lock, and
# eight took 1.7 times as long as one (12 files of 10,000 engines each, in the page cache).
_MANY_FAR = (16, 1)
_MANY_NEAR = (2, 64)


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


def read_many(stores: Stores, act: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """`act` on each of any number of `items`, in order, a few under way at a time."""
    readers, share = _MANY_FAR if stores.is_far else _MANY_NEAR
    left = iter(items)
    begun: deque[Future[list[T]]] = deque()
    with ThreadPoolExecutor(readers, thread_name_prefix="engine-registry-many") as pool:
        while some := list(islice(left, share)):
            begun.append(pool.submit(lambda some: [act(item) for item in some], some))
            if len(begun) > 2 * readers:
                yield from begun.popleft().result()
        while begun:
            yield from begun.popleft().result()
