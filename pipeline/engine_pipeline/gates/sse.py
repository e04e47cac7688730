"""Server-sent events, as far as OpenAI-compatible servers send them. Pure.

Splits a byte stream into the `data` of its events. Lines end with LF or CRLF; a blank line ends an
event; comment lines (`:` first, which llama.cpp sends to keep a connection open) and other fields
are dropped.
"""

from __future__ import annotations

# An event carries one delta; the largest real ones, with top log-probabilities, are some 10 KiB.
MAX_EVENT_BYTES = 4 << 20


class EventSplitter:
    """Collects bytes and gives back the data of each event that has become whole."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that `chunk` completes, in order.

        Raises:
            ValueError: an event is larger than MAX_EVENT_BYTES or is not UTF-8.
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = []
        for line in lines:
            field = line.removesuffix(b"\r")
            if not field and self._data:
                events.append(b"\n".join(self._data).decode())
                self._data = []
            elif field.startswith(b"data:"):
                self._data.append(field[5:].removeprefix(b" "))
        if len(self._rest) + sum(map(len, self._data)) > MAX_EVENT_BYTES:
            msg = f"an event of more than {MAX_EVENT_BYTES} bytes"
            raise ValueError(msg)
        return events
