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
VARIANT = "+"
"""Stands before the name of a variant."""
REQUIRED = "required"
VARIANTS = {
    REQUIRED: ("vtc_server=llama.cpp", "vtc_constrain=required"),
    "auto": ("vtc_server=llama.cpp", "vtc_constrain=auto"),
    "last": ("vtc_blocks=last",),
}
"""What a variant sets beside its set-up."""
PATIENCE = 600
"""Seconds for one reply; a small machine reads a long prompt first."""


@contextmanager
def client(setup: str, url: str, profiles: Sequence[Path] = ()) -> Iterator[openai.OpenAI]:
    """Open a client of the server at `url`, an OpenAI-compatible base such as `http://127.0.0.1:8000/v1`.

    `setup` is `direct`, `default` or the dialect that the model is prompted in, the latter two with `+` and a variant
    if one is wanted; `profiles` are folders with more of them.
    """
    if setup == DIRECT:
        with _sdk(url) as sdk:
            yield sdk
        return
    parts = urlsplit(url)
    settings = [f"vtc_profiles={folder.resolve()}" for folder in profiles]
    dialect, _, variant = setup.partition(VARIANT)
    if dialect != DEFAULT:
        settings += ["vtc_tools=prompt", f"vtc_dialect={dialect}"]
    settings += VARIANTS.get(variant, ())
    with tempfile.TemporaryDirectory() as confdir:
        command = mitmdump(ADDON, f"{parts.scheme}://{parts.netloc}", Path(confdir), *settings)
        with running(command) as proxy, _sdk(f"http://127.0.0.1:{proxy.read()['port']}{parts.path}") as sdk:
            yield sdk


def _sdk(url: str) -> openai.OpenAI:
    # No proxy of the environment: a server on this machine is asked directly.
    transport = openai.DefaultHttpxClient(trust_env=False)
    key = os.environ.get("OPENAI_API_KEY", "none")
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=PATIENCE, http_client=transport)
