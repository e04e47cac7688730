"""Watches the boards while something is measured, through a child that cannot hang this process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from engine_pipeline.nvml.use import BoardUse, Reading, disturbances, use_of

if TYPE_CHECKING:
    from types import TracebackType

PERIOD_S = 0.2
_PATIENCE_S = 2.0
_SAMPLE = Path(__file__).with_name("sample.py")


class GpuWatch:
    """Reads every visible board every PERIOD_S while its block runs.

    Where there is no driver there is nothing to see, and nothing is said.
    """

    def __init__(self) -> None:
        self._boards: list[dict[str, Any]] = []
        self._readings: list[Reading] = []
        self._child: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        with suppress(OSError):
            self._child = subprocess.Popen(
                # -P: files beside it must not shadow modules.
                [sys.executable, "-P", str(_SAMPLE), str(PERIOD_S)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        child = self._child
        if child is None:
            return
        with suppress(OSError):
            if child.stdin is not None:
                child.stdin.close()
        try:
            child.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()  # a board that has fallen off the bus; the kernel may keep the process
        if self._reader is not None:
            self._reader.join(_PATIENCE_S)
        if child.stdout is not None and child.poll() is not None:
            child.stdout.close()

    def use(self, since: float, until: float) -> tuple[BoardUse, ...]:
        """How each board did between two times of `time.perf_counter`; none without boards."""
        return use_of(tuple(self._readings), since, until)

    def disturbances(self) -> list[tuple[float, float]]:
        """The times in which some board was slowed down by what is not its own."""
        return disturbances(tuple(self._readings), PERIOD_S)

    def _read(self) -> None:
        assert self._child is not None
        assert self._child.stdout is not None
        with suppress(OSError, ValueError, KeyError, TypeError):
            for line in self._child.stdout:
                self._take(json.loads(line))

    def _take(self, said: dict[str, Any]) -> None:
        if "at" not in said:
            self._boards = said.get("boards", [])
            return
        for board, found in zip(self._boards, said["boards"], strict=True):
            self._readings.append(
                Reading(at=said["at"], uuid=board["uuid"], name=board["name"], **found)
            )
