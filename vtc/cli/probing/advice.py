"""The one flag of a server that changes what was seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PARSERS: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "hermes": "hermes",
        "qwen3-coder": "qwen3_coder",
        "mistral": "mistral",
        "mistral-v3": "mistral",
        "llama3": "llama3_json",
        "deepseek-v3": "deepseek_v3",
        "deepseek-v3.1": "deepseek_v31",
        "deepseek-v3.2": "deepseek_v32",
        "kimi-k2": "kimi_k2",
        "glm-4.5": "glm45",
        "glm-4.7": "glm47",
        "granite": "granite",
        "internlm": "internlm",
        "jamba": "jamba",
        "minimax-m2": "minimax_m2",
        "hunyuan": "hunyuan_a13b",
        "harmony": "openai",
        "pythonic": "pythonic",
        "olmo-3": "olmo3",
        "step-3": "step3",
        "seed-oss": "seed_oss",
    },
    "sglang": {
        "hermes": "qwen",
        "qwen3-coder": "qwen3_coder",
        "mistral": "mistral",
        "mistral-v3": "mistral",
        "llama3": "llama3",
        "deepseek-v3": "deepseekv3",
        "deepseek-v3.1": "deepseekv31",
        "kimi-k2": "kimi_k2",
        "glm-4.5": "glm45",
        "glm-4.7": "glm47",
        "harmony": "gpt-oss",
        "pythonic": "pythonic",
        "minimax-m2": "minimax-m2",
        "step-3": "step3",
    },
}
"""The parser of calls by server and dialect, as `--tool-call-parser` names it."""


def parser(server: str, dialects: Iterable[str]) -> str:
    """Say which flags make a server read calls itself; empty if that is not known."""
    known = PARSERS.get(server, {})
    name = next((known[one] for one in dialects if one in known), "NAME")
    if server == "vllm":
        return f"start vLLM with `--enable-auto-tool-choice --tool-call-parser {name}`"
    if server == "sglang":
        return f"start SGLang with `--tool-call-parser {name}`"
    if server == "llama.cpp":
        return "restart llama-server with `--jinja`"
    if server == "ollama":
        return "take a model for which `ollama show` lists the capability tools"
    return ""


def reasoning(server: str) -> str:
    """Say which flag makes a server part reasoning off itself."""
    return {
        "vllm": "start vLLM with `--reasoning-parser NAME`",
        "sglang": "start SGLang with `--reasoning-parser NAME`",
        "llama.cpp": "restart llama-server with `--reasoning-format auto`",
    }.get(server, "")


def context(server: str) -> str:
    """Say how a server is given more context."""
    return {
        "ollama": "start Ollama with `OLLAMA_CONTEXT_LENGTH=32768`, or set `num_ctx` in the Modelfile",
        "llama.cpp": "restart llama-server with a larger `--ctx-size`",
        "lm-studio": "load the model with a larger context length",
    }.get(server, "give the server a larger context")
