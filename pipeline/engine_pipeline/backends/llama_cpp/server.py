"""Serves one GGUF file on the loopback interface until it is ended: llama.cpp's own HTTP server.

    python -m engine_pipeline.backends.llama_cpp.server --model FILE --port N --slots N --context N

With `--pooling` it is a server of embeddings alone, at `/v1/embeddings`.

A process of its own, because the server object of xllamacpp cannot be stopped and holds the model's
memory. `/health` answers 503 while the model loads and 200 from then on.
"""

from __future__ import annotations

import argparse
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.backends.llama_cpp.embeddings import POOLINGS
from engine_pipeline.backends.llama_cpp.gguf_header import read_header
from engine_pipeline.backends.llama_cpp.runtime import RUNTIME, installed
from engine_pipeline.build.machine import usable_cores
from engine_pipeline.runners.protocol import run_child
from engine_registry.errors import Incompatible, InvalidInput, Unavailable

if TYPE_CHECKING:
    from engine_pipeline.progress import Progress

_HOST = "127.0.0.1"
# Tokens of one forward pass within a batch: llama.cpp's default (`n_ubatch`).
_MICRO_BATCH = 512


def check_runtime(wanted: str) -> None:
    """Refuse to serve with another runtime than the engine was released for.

    Raises:
        Incompatible: `runtime-version-differs`, with both versions.
    """
    if (found := installed(RUNTIME)) != wanted:
        raise Incompatible(
            f"engine wants {RUNTIME} {wanted}, installed is {found}",
            hint=f"pip install {RUNTIME}=={wanted}",
            reference="runtime-version-differs",
        )


def default_threads() -> int:
    """One core fewer than this process may use, at least one.

    llama.cpp's threads spin at barriers: with a thread on every core, any other busy process slows
    it 3 to 10 times (measured on 2 cores).
    """
    return max(1, usable_cores() - 1)


def serve(arguments: argparse.Namespace, progress: Progress) -> None:
    """Load the model and serve it until a signal ends the process.

    Raises:
        Incompatible: the installed runtime is not the wanted one.
        InvalidInput: the file is no model, or llama.cpp refuses it.
        Unavailable: the port is taken.
    """
    if arguments.runtime:
        check_runtime(arguments.runtime)
    model: Path = arguments.model
    header = read_header(model)
    progress.phase("load", f"{model.name}, {header.architecture}, {arguments.slots} slots")
    _refuse_taken_port(arguments.port)

    import xllamacpp

    threads = arguments.threads or default_threads()
    settings = xllamacpp.CommonParams()
    settings.model.path = str(model)
    settings.model_alias = {arguments.alias}
    settings.hostnames = [_HOST]
    settings.port = arguments.port
    settings.n_parallel = arguments.slots
    settings.n_ctx = arguments.context * arguments.slots
    settings.n_batch = arguments.batch_tokens
    settings.n_ubatch = min(_MICRO_BATCH, arguments.batch_tokens)
    if arguments.pooling:
        settings.embedding = True
        settings.pooling_type = getattr(
            xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{arguments.pooling.upper()}"
        )
        # A text is pooled in one forward pass.
        settings.n_ubatch = arguments.batch_tokens
    settings.cpuparams.n_threads = threads
    settings.cpuparams_batch.n_threads = threads
    settings.cache_ram_mib = arguments.prompt_cache_mib
    settings.n_gpu_layers = 0
    settings.endpoint_metrics = True
    settings.fit_params = False
    settings.offline = True
    settings.ui = False
    try:
        server = xllamacpp.Server(settings)
    except RuntimeError as error:
        raise InvalidInput(
            f"{model.name}: llama.cpp cannot load it: {str(error).splitlines()[0]}",
            hint="the lines above are llama.cpp's own; run `enginectl inspect` on the engine",
            reference="engine-does-not-load",
        ) from error
    progress.note(f"serving at {server.listening_address} with {threads} threads")
    while True:
        signal.pause()


def _refuse_taken_port(port: int) -> None:
    # llama.cpp reports a taken port like a model that does not load.
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {_HOST}:{port}: {error.strerror}",
                hint="run the same command again, with another --port if you named this one",
                reference="port-taken",
            ) from error


def main(argv: list[str] | None = None) -> int:
    """Serve; returns only if the model cannot be served."""
    # Ctrl-C in a terminal ends the server at once, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parser = argparse.ArgumentParser(prog="server")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True, help="0 picks a free one")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--context", type=int, default=2048, help="tokens of each slot")
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=0, help="0: cores less one")
    parser.add_argument("--prompt-cache-mib", type=int, default=256)
    parser.add_argument("--alias", default="engine")
    parser.add_argument("--pooling", choices=POOLINGS, help="serve embeddings, pooled so")
    parser.add_argument("--runtime", help=f"version of {RUNTIME} that must be installed")
    return run_child(partial(serve, parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
