"""What a server says of itself may be anything, and ends no command."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.e2e.upstream import JSON, Reply, Seen, serving
from vtc.cli.probing.talk import ABOUT, CONTEXTS, learn
from vtc.profiles import builtin_directory, load
from vtc.proxy.asker import Asker

PROFILES = load([builtin_directory()])
ODD: list[Any] = [["vllm"], {"a": ["b"]}, None, 5, "x" * 9, True]


@pytest.mark.parametrize("odd", ODD, ids=str)
@pytest.mark.parametrize("named", ["", "ollama", "llama.cpp"])
async def test_odd_values_in_lists_of_models_and_in_what_servers_tell_end_nothing(odd: Any, named: str) -> None:
    fields = {path.partition(".")[0]: odd for path in CONTEXTS}
    about = {key: odd for one in ABOUT for path in (one.shows, one.version, one.context) for key in path.split(".")[:1]}
    entries = [{"id": odd}, {"id": "m", "owned_by": odd, **fields}, odd]
    told = {"data": entries, **about, "capabilities": odd, "model_info": {"x.context_length": odd}, "parameters": odd}

    def answer(_: Seen) -> Reply:
        return Reply([json.dumps(told).encode()], JSON, framing="length")

    async with serving(answer) as upstream:
        asker = Asker(upstream.url)
        found = await asyncio.to_thread(learn, asker, PROFILES, model="", apis=("openai-chat",), named=named)
    assert (found.problem, found.model) == ("", odd if isinstance(odd, str) else "m")


async def test_a_window_of_thousands_of_digits_is_none() -> None:
    told = {"data": [{"id": "m"}], "parameters": f"num_ctx {'9' * 9999}"}

    async with serving(lambda _: Reply([json.dumps(told).encode()], JSON, framing="length")) as upstream:
        asker = Asker(upstream.url)
        found = await asyncio.to_thread(learn, asker, PROFILES, model="", apis=("openai-chat",), named="ollama")
    assert (found.problem, found.context) == ("", 0)
