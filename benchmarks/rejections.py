"""Measure how many of the rejections that users reported VTC fixes within one exchange.

A scripted server answers with the reported error as long as the request contains its cause (`rejected`, a JMESPath
expression). Fixed means that one of the three retries no longer contains it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jmespath
import yaml

from benchmarks.figures import Figure
from vtc import apis
from vtc.apis import RequestError
from vtc.exchange import Session
from vtc.exchange.asking.request import MAX_REQUESTS
from vtc.profiles import Facts, Planner, Settings, builtin_directory, load_profiles

CASES = Path(__file__).parent.parent / "tests" / "cases" / "rejections"
FILES = ("reported", "further")
MAX_UNFIXED_PERCENT = 15
_PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic-messages": "/v1/messages",
    "gemini-generate": "/v1beta/models/lab-model:generateContent",
    "ollama-chat": "/api/chat",
}
_MESSAGES = {"messages": [{"role": "user", "content": "a"}]}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "openai-chat": _MESSAGES,
    "openai-responses": {"input": [{"role": "user", "content": "a"}]},
    "anthropic-messages": {"max_tokens": 1024, **_MESSAGES},
    "gemini-generate": {"contents": [{"role": "user", "parts": [{"text": "a"}]}]},
    "ollama-chat": {"stream": False, **_MESSAGES},
}


def load_cases(name: str) -> list[dict[str, Any]]:
    """Load a file of reported rejections."""
    cases: list[dict[str, Any]] = yaml.safe_load((CASES / f"{name}.yaml").read_text("utf-8"))
    return cases


def count_retries(case: Mapping[str, Any], planner: Planner) -> int | None:
    """Count the retries until the server accepts the request; None if it never does."""
    api, path = case["api"], _PATHS[case["api"]]
    body = json.dumps({"model": "lab-model", **_DEFAULTS[api], **case["fields"]}).encode()
    facts = Facts(path=path, host="127.0.0.1", model="lab-model")
    by_name = {each.name: each for each in apis.APIS}
    try:
        session = Session.open(by_name[api], body, facts, planner, "seed")
        sent: bytes | None = session.encode_request()
    except RequestError:
        return None
    for retries in range(MAX_REQUESTS):
        if sent is None:
            return None
        if not jmespath.search(case["rejected"], json.loads(sent)):
            return retries
        sent = session.encode_after_rejection(json.dumps(case["error"]).encode(), case.get("status", 400))
    return None


@cache
def make_planner() -> Planner:
    """Make a planner with the built-in profiles."""
    return Planner(load_profiles([builtin_directory()]), Settings())


def measure() -> Iterator[Figure]:
    """Measure the share of cases that VTC does not fix, by file."""
    planner = make_planner()
    for name in FILES:
        cases = [case for case in load_cases(name) if case.get("fixable", True)]
        unfixed = [case["source"] for case in cases if count_retries(case, planner) is None]
        percent = 100 * len(unfixed) / len(cases)
        note = f"{len(cases) - len(unfixed)} of {len(cases)} fixed; not {'; '.join(unfixed) or 'any'}"
        yield Figure("rejections", f"not fixed: {name}", "%", [percent], MAX_UNFIXED_PERCENT, note)
