"""Why a request to a server was not answered, in the operating system's words."""

from __future__ import annotations


def cause_of(error: BaseException) -> str:
    """What went wrong at the bottom of a client library's exceptions, e.g. `Connection refused`.

    Never the library's own text, which may repeat addresses with secrets in them; its exception's
    name is the last resort.
    """
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for link in reversed(chain):
        if isinstance(link, OSError) and link.errno is not None and link.strerror:
            return link.strerror
    if any(isinstance(link, TimeoutError) or "Timeout" in type(link).__name__ for link in chain):
        return "no answer in time"
    return type(error).__name__
