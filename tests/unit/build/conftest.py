"""A small spec and lock, for builds without a model."""

from __future__ import annotations

import pytest

from engine_pipeline.spec.lock import BuildLock


@pytest.fixture(scope="session")
def make_lock():
    def make(sku: str = "cpu-x86-64-v3", **spec: object) -> BuildLock:
        return BuildLock.model_validate(
            {
                "spec": {
                    "schema_version": 1,
                    "model": {"name": "toy", "source": "file://toy", "revision": "one"},
                    "target": {"sku": sku},
                    "precision": {"weights": "int8"},
                    "backend": {"kind": "llama-cpp", "version": "1.0"},
                    "limits": {
                        "max_batch_size": 1,
                        "max_input_tokens": 8,
                        "max_sequence_tokens": 16,
                        "max_batch_tokens": 16,
                    },
                    "suites": ["toy"],
                }
                | spec,
                "source": {
                    "source": "file://toy",
                    "revision": "one",
                    "files": [{"path": "m.bin", "size_bytes": 4, "digest": "sha256:" + "a" * 64}],
                },
                "tokenizer": {"digest": "sha256:" + "b" * 64, "chat_template": None},
                "tools": {"tool": "1"},
            }
        )

    return make
