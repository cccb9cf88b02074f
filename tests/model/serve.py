"""A real model server for the tests: llama.cpp's own, on a free loopback port.

usage: python serve.py MODEL_FILE

Writes its address to stdout when it listens, and ends when stdin does.
"""

from __future__ import annotations

import sys

import xllamacpp

CONTEXT_TOKENS = 2048


def main(model_file: str) -> None:
    """Serve until stdin ends."""
    settings = xllamacpp.CommonParams()
    settings.model.path = model_file
    settings.port = 0
    # One slot and one thread: equal requests then give equal answers.
    settings.n_parallel = 1
    settings.cpuparams.n_threads = 1
    settings.n_ctx = CONTEXT_TOKENS
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
