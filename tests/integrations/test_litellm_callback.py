"""`examples/litellm_callback.py` with LiteLLM's SDK and its proxy."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else the import loads prices from the network
litellm = pytest.importorskip("litellm")
httpx = pytest.importorskip("httpx2")
openai = pytest.importorskip("openai")

from examples.litellm_callback import rewrite_stream, vtc_callback  # noqa: E402
from tests.integrations.checks import ASKED, check_completion  # noqa: E402
from tests.integrations.model_server import MODELS, TOOLS, run_model_server  # noqa: E402

pytestmark = pytest.mark.integrations
EXAMPLE = Path(__file__).parents[2] / "examples" / "litellm_callback.py"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with run_model_server() as url:
        yield url


def test_the_sdk(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm, "callbacks", [vtc_callback])

    async def talk() -> None:
        for model in MODELS:
            asked = {
                "model": f"hosted_vllm/{model}",
                "api_base": f"{server}/v1",
                "api_key": "k",
                "tools": TOOLS,
                **ASKED,
            }
            check_completion(await litellm.acompletion(**asked))
            stream = rewrite_stream(await litellm.acompletion(**asked, stream=True))
            check_completion(litellm.stream_chunk_builder([chunk async for chunk in stream]))

    asyncio.run(talk())


def test_a_request_without_tools_is_not_changed(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm, "callbacks", [vtc_callback])
    asked = {"messages": [{"role": "user", "content": "x"}], "mock_response": "Hi", "model": "openai/x", "api_key": "k"}
    assert asyncio.run(litellm.acompletion(**asked)).choices[0].message.content == "Hi"


def test_the_proxy(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy_server = pytest.importorskip("litellm.proxy.proxy_server")
    monkeypatch.setattr(litellm, "callbacks", [])
    shutil.copy(EXAMPLE, tmp_path)
    models = [
        {"model_name": model, "litellm_params": {"model": f"hosted_vllm/{model}", "api_base": f"{server}/v1"}}
        for model in MODELS
    ]
    config = {"model_list": models, "litellm_settings": {"callbacks": ["litellm_callback.vtc_callback"]}}
    (tmp_path / "config.yaml").write_text(json.dumps(config))

    async def talk() -> None:
        await proxy_server.initialize(config=str(tmp_path / "config.yaml"))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(proxy_server.app)) as http:
            client = openai.AsyncOpenAI(base_url="http://proxy/v1", api_key="k", http_client=http)
            for model in MODELS:
                check_completion(await client.chat.completions.create(model=model, tools=TOOLS, **ASKED))
                async with client.chat.completions.stream(model=model, tools=TOOLS, **ASKED) as stream:
                    check_completion(await stream.get_final_completion())

    asyncio.run(talk())
