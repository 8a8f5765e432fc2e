"""What stands between the agent and the model server: nothing, or a real mitmdump with VTC."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import openai

from benchmarks.proxy.processes import ADDON, mitmdump, running

DIRECT, DEFAULT = "direct", "default"
USUAL = (DIRECT, DEFAULT, "hermes", "bare-json", "json-in-tags", "llama3", "invoke", "qwen3-coder", "tag")
"""Both, and dialects of plain text in which models are prompted that have no special tokens of their own."""
CONSTRAINED = "+"
"""Stands before the value of `vtc_constrain`."""
HOW = ("required", "auto")
PATIENCE = 600
"""Seconds for one reply; a small machine reads a long prompt first."""


@contextmanager
def client(setup: str, url: str, profiles: Sequence[Path] = ()) -> Iterator[openai.OpenAI]:
    """Open a client of the server at `url`, an OpenAI-compatible base such as `http://127.0.0.1:8000/v1`.

    `setup` is `direct`, `default` or the dialect that the model is prompted in, with `+required` or `+auto` where its
    server decodes by a grammar as llama.cpp does; `profiles` are folders with more of them.
    """
    if setup == DIRECT:
        with _sdk(url) as sdk:
            yield sdk
        return
    parts = urlsplit(url)
    settings = [f"vtc_profiles={folder.resolve()}" for folder in profiles]
    dialect, _, constrained = setup.partition(CONSTRAINED)
    if setup != DEFAULT:
        settings += ["vtc_tools=prompt", f"vtc_dialect={dialect}"]
    if constrained:
        settings += ["vtc_server=llama.cpp", f"vtc_constrain={constrained}"]
    with tempfile.TemporaryDirectory() as confdir:
        command = mitmdump(ADDON, f"{parts.scheme}://{parts.netloc}", Path(confdir), *settings)
        with running(command) as proxy, _sdk(f"http://127.0.0.1:{proxy.read()['port']}{parts.path}") as sdk:
            yield sdk


def _sdk(url: str) -> openai.OpenAI:
    # No proxy of the environment: a server on this machine is asked directly.
    transport = openai.DefaultHttpxClient(trust_env=False)
    key = os.environ.get("OPENAI_API_KEY", "none")
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=PATIENCE, http_client=transport)
