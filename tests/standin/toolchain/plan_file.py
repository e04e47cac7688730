"""Plans of the stand-in: the true header, what the plan is bound to, the weights, and filler.

Real plans keep compute capability and board somewhere undocumented; here they are JSON after the
header, for the stand-in's own server and refit.
"""

import json
import os

TAG = b"ftrt"
HEADER_BYTES = 28


def write_plan(path, tensorrt, bound, weights, size=None):
    """`weights` is empty for a stripped plan; `size` is reached with filler or by cutting."""
    version = bytes(int(part) for part in [*tensorrt.split("."), "0", "0"][:4])
    header = TAG + bytes(20) + version
    note = json.dumps(bound | {"weights": len(weights)}).encode()
    # No two builds give the same plan, like the real ones.
    data = header + len(note).to_bytes(4, "little") + note + weights + os.urandom(32)
    if size is not None:
        data = (data + bytes(max(0, size - len(data))))[: max(size, HEADER_BYTES + 4 + len(note))]
    path.write_bytes(data)


def read_plan(path):
    """TensorRT version, what the plan is bound to, and its weights."""
    data = path.read_bytes()
    if not data.startswith(TAG) or len(data) < HEADER_BYTES + 4:
        raise ValueError("Magic tag does not match")
    version = ".".join(str(part) for part in data[24:HEADER_BYTES])
    length = int.from_bytes(data[HEADER_BYTES : HEADER_BYTES + 4], "little")
    start = HEADER_BYTES + 4
    bound = json.loads(data[start : start + length])
    return version, bound, data[start + length :][: bound["weights"]]
