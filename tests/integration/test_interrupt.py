"""Ctrl-C ends a command at once, also while other threads wait to try a bucket again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

LIMIT_S = 60
QUICK_S = 4  # the pauses that are left then take at least 5.3 s


def test_nobody_waits_for_a_bucket_that_is_away_after_ctrl_c(tmp_path):
    where = "s3://engines/team?endpoint=http://127.0.0.1:1&region=us-east-1"
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    child = subprocess.Popen(
        [
            *(sys.executable, "-c", "from engine_pipeline.cli import main; main()"),
            *("rollback", "a/b/c", "--reason", "slow", "--registry", where),
        ],
        cwd=tmp_path,
        env={**os.environ, **keys},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stderr is not None
        assert "trying again" in child.stderr.readline()
        asked = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=LIMIT_S)
        took_s = time.monotonic() - asked
    finally:
        child.kill()
        child.wait()
    assert "error[interrupted]" in err
    assert child.returncode == 130
    assert took_s < QUICK_S
