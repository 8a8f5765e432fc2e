"""The chat templates of real models, with conversations that some of them reject: `make test-templates`.

They are in packages of the package index (`tests/real_templates.py`).
"""

from __future__ import annotations

import jinja2
import pytest

from tests.exchange.asking.applied_steps import list_roles
from tests.exchange.asking.conversations import CONVERSATIONS, count_requests
from tests.exchange.asking.templates import Contents, environment, goes_through_parts, template
from tests.real_templates import AXOLOTL, load_templates

FAMILIES = {
    *(
        "aya",
        "command_a",
        "deepseek_v3",
        "exaone4",
        "falcon_h1",
        "gemma",
        "gemma3",
        "jamba",
        "llama3_2_vision",
        "llama4",
    ),
    *("mistral_v1", "mistral_v3_tekken", "mistral_v7_tekken", "nemotron_h", "phi_4", "qwen3", "qwen3_5"),
}
"""Templates that must be among them."""
NUMBER = 36

pytestmark = pytest.mark.templates


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """Return the templates by name."""
    return load_templates(AXOLOTL)


DEVELOPER = {
    "qwen_25": "qwen2.5:7b",
    "qwen3": "qwen3:8b",
    "qwen3_5": "qwen3.5:9b",
    "phi_4": "phi4:14b",
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), "deepseek-v3:671b"),
    **dict.fromkeys(("command_a", "command_a_rag", "command_a_tool_use"), "command-a:111b"),
    **dict.fromkeys(("alpaca", "metharme", "phi_3", "phi_35"), ""),
}
"""Templates that silently drop the role `developer`, with a model of each, empty if VTC has no profile for it."""


def leaves_out(source: str, role: str) -> bool:
    """Return True if the template renders a first message of a role without its text, and raises nothing."""
    messages = [{"role": role, "content": "RULES"}, {"role": "user", "content": "Go."}]
    made = environment()
    if goes_through_parts(made.parse(source)):
        messages = [{**one, "content": [{"type": "text", "text": one["content"]}]} for one in messages]
    try:
        return "RULES" not in made.from_string(source).render(messages=messages, bos_token="", eos_token="")
    except jinja2.TemplateError:
        return False


def test_models_whose_template_omits_the_developer_are_listed(sources: dict[str, str]) -> None:
    assert {name for name, source in sources.items() if leaves_out(source, "developer")} == {*DEVELOPER}
    assert not any(leaves_out(source, "system") for source in sources.values())
    assert all(list_roles(model) == ["system", "user"] for model in DEVELOPER.values() if model)


def test_none_is_omitted(sources: dict[str, str]) -> None:
    assert len(sources) == NUMBER
    assert sources.keys() >= FAMILIES


@pytest.mark.parametrize("contents", ["as sent", "fitted"])
def test_each_takes_each_conversation_in_the_end(sources: dict[str, str], contents: Contents) -> None:
    failures: list[str] = []
    counts: dict[int, int] = {}
    for name, source in sources.items():
        server = template(source, contents)
        for of, messages in CONVERSATIONS.items():
            try:
                count = count_requests(messages, server)
            except AssertionError as error:
                failures.append(f"{name}, {of}: {error}")
            else:
                counts[count] = counts.get(count, 0) + 1
    summary = ", ".join(f"{number} by request {count}" for count, number in sorted(counts.items()))
    print(f"contents {contents}: {len(sources)} templates x {len(CONVERSATIONS)} conversations: {summary}")  # noqa: T201
    assert not failures, "\n".join(failures)
    assert sum(counts.values()) == NUMBER * len(CONVERSATIONS)
