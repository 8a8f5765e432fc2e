"""Set-ups: the agent calls the model server directly, or through a real mitmdump with VTC."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import openai

from benchmarks.proxy.processes import ADDON, make_mitmdump_command, run_process

DIRECT, DEFAULT = "direct", "default"
USUAL_SETUPS = (DIRECT, DEFAULT, "hermes", "bare-json", "json-in-tags", "llama3", "invoke", "qwen3-coder", "tag")
"""The default set-ups: both of these, and plain-text dialects for models without special tokens for calls."""
VARIANT_SEPARATOR = "+"
"""Separator between the name of a set-up and that of a variant."""
REQUIRED = "required"
VARIANTS = {
    REQUIRED: ("vtc_server=llama.cpp", "vtc_constrain=required"),
    "auto": ("vtc_server=llama.cpp", "vtc_constrain=auto"),
    "last": ("vtc_blocks=last",),
}
"""Options that a variant adds to its set-up."""
REPLY_TIMEOUT_SECONDS = 600
"""Time limit of one reply; a slow machine needs long for a long prompt."""


@contextmanager
def open_client(setup: str, url: str, profiles: Sequence[Path] = ()) -> Iterator[openai.OpenAI]:
    """Open a client of the server at `url`, an OpenAI-compatible base such as `http://127.0.0.1:8000/v1`.

    `setup` is `direct`, `default` or the dialect of the prompt; the latter two can be followed by `+` and a variant.
    `profiles` are folders with more profiles.
    """
    if setup == DIRECT:
        with _make_sdk(url) as sdk:
            yield sdk
        return
    parts = urlsplit(url)
    settings = [f"vtc_profiles={folder.resolve()}" for folder in profiles]
    dialect, _, variant = setup.partition(VARIANT_SEPARATOR)
    if dialect != DEFAULT:
        settings += ["vtc_tools=prompt", f"vtc_dialect={dialect}"]
    settings += VARIANTS.get(variant, ())
    with tempfile.TemporaryDirectory() as confdir:
        command = make_mitmdump_command(ADDON, f"{parts.scheme}://{parts.netloc}", Path(confdir), *settings)
        with run_process(command) as proxy, _make_sdk(f"http://127.0.0.1:{proxy.read()['port']}{parts.path}") as sdk:
            yield sdk


def _make_sdk(url: str) -> openai.OpenAI:
    # Ignore proxies of the environment, because the server can be on this machine.
    transport = openai.DefaultHttpxClient(trust_env=False)
    key = os.environ.get("OPENAI_API_KEY", "none")
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=REPLY_TIMEOUT_SECONDS, http_client=transport)
