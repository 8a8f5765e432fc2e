"""Test that no self-description of a server ends the command."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.e2e.upstream import JSON, Reply, Seen, serving
from vtc.cli.probing.server_facts import CONTEXT_PATHS, SELF_DESCRIPTIONS, learn_server_facts
from vtc.profiles import builtin_directory, load_profiles
from vtc.proxy.asking.asker import Asker

PROFILES = load_profiles([builtin_directory()])
ODD: list[Any] = [["vllm"], {"a": ["b"]}, None, 5, "x" * 9, True]


@pytest.mark.parametrize("odd", ODD, ids=str)
@pytest.mark.parametrize("named", ["", "ollama", "llama.cpp"])
async def test_odd_values_in_self_descriptions_are_ignored(odd: Any, named: str) -> None:
    fields = {path.partition(".")[0]: odd for path in CONTEXT_PATHS}
    about = {
        key: odd
        for one in SELF_DESCRIPTIONS
        for path in (one.required_key, one.version, one.context)
        for key in path.split(".")[:1]
    }
    entries = [{"id": odd}, {"id": "m", "owned_by": odd, **fields}, odd]
    body = {"data": entries, **about, "capabilities": odd, "model_info": {"x.context_length": odd}, "parameters": odd}

    def answer(_: Seen) -> Reply:
        return Reply([json.dumps(body).encode()], JSON, framing="length")

    async with serving(answer) as upstream:
        asker = Asker(upstream.url)
        facts = await asyncio.to_thread(
            learn_server_facts, asker, PROFILES, model="", chosen_apis=("openai-chat",), server_name=named
        )
    assert (facts.problem, facts.model) == ("", odd if isinstance(odd, str) else "m")


async def test_a_context_length_of_thousands_of_digits_is_ignored() -> None:
    body = {"data": [{"id": "m"}], "parameters": f"num_ctx {'9' * 9999}"}

    async with serving(lambda _: Reply([json.dumps(body).encode()], JSON, framing="length")) as upstream:
        asker = Asker(upstream.url)
        facts = await asyncio.to_thread(
            learn_server_facts, asker, PROFILES, model="", chosen_apis=("openai-chat",), server_name="ollama"
        )
    assert (facts.problem, facts.context) == ("", 0)
