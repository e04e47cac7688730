"""Counts downloaded bytes by standing in for the progress bar that huggingface_hub draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Meter:
    """Counts the bytes of one try.

    Args:
        tick: told how many more bytes came.
    """

    def __init__(self, tick: Callable[[int], None]) -> None:
        self._tick = tick
        self._counted = 0

    def add(self, count: float | None) -> None:
        """So many more bytes; negative when the library takes some back."""
        self._counted += int(count or 0)
        self._tick(int(count or 0))

    def undo(self) -> None:
        """Take back everything this try counted."""
        self._tick(-self._counted)
        self._counted = 0

    def bar(self) -> type:
        """A class to give to huggingface_hub as `tqdm_class`."""
        meter = self

        class Bar:
            """The part of tqdm's interface that huggingface_hub 2.4 uses."""

            def __init__(self, **options: Any) -> None:
                self.total = options.get("total")
                self.n = options.get("initial", 0)

            def __enter__(self) -> Bar:
                return self

            def __exit__(self, *error: object) -> None:
                self.close()

            def update(self, count: float | None = 1) -> None:
                self.n += count or 0
                meter.add(count)

            # Bytes over the network; what counts here is bytes written.
            def update_transfer(self, count: float) -> None: ...

            def set_postfix_str(self, text: str, refresh: bool = True) -> None: ...

            def set_transfer_postfix_str(self, text: str, refresh: bool = True) -> None: ...

            def refresh(self) -> None: ...

            def close(self) -> None: ...

        return Bar
