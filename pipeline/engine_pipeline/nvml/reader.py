"""Reads the machine's GPUs now, in a child process that cannot hang this one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from engine_pipeline.nvml.inventory import Inventory, inventory_of

# The driver may need seconds to wake the boards of a host without the persistence daemon.
TIMEOUT_S = 20.0
_ASK = Path(__file__).with_name("ask.py")


class GpuReader(Protocol):
    """Says what GPUs there are and who uses them."""

    def read(self) -> Inventory:
        """Everything, as it is now; why there is nothing is part of the answer. Never raises."""
        ...


class NvmlReader:
    """The driver of this machine, through `nvidia-ml-py`.

    Args:
        timeout_s: longest wait for it.
    """

    def __init__(self, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s

    def read(self) -> Inventory:
        """Ask it now; see `GpuReader.read`."""
        try:
            done = subprocess.run(
                # -P: files beside it must not shadow modules.
                [sys.executable, "-P", str(_ASK)],
                capture_output=True,
                timeout=self._timeout_s,
                check=True,
            )
            return inventory_of(json.loads(done.stdout))
        except subprocess.TimeoutExpired:
            return Inventory(absent=f"the NVIDIA driver did not answer in {self._timeout_s:g} s")
        except subprocess.CalledProcessError as error:
            last = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
            return Inventory(absent=f"asking the NVIDIA driver failed: {''.join(last)[:200]}")
        except (OSError, ValueError) as error:
            return Inventory(absent=f"asking the NVIDIA driver failed: {error}")
