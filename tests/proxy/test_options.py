"""The options: mitmproxy's list of them, rejected values, and the resulting plan."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import ctx, exceptions
from mitmproxy.test import taddons

from tests.apis import chat
from vtc.apis.openai_chat import Request
from vtc.profiles import Facts, Plan
from vtc.proxy import options
from vtc.proxy.addon import VirtualToolCalling


@pytest.fixture
def configure() -> Iterator[Any]:
    """Set options as mitmproxy does, with the addon loaded."""
    addon = VirtualToolCalling()
    with taddons.context(addon) as context:
        yield lambda **settings: context.configure(addon, **settings)


def plan(**fields: Any) -> Plan:
    body = chat.encode_json(chat.request(**fields))
    return options.build_planner(ctx.options).plan(Facts(user_agent="OpenAI/Python 3", model=chat.MODEL), Request(body))


def test_every_option_has_a_description(configure: Any) -> None:
    ours = {name: option for name, option in ctx.options.items() if name.startswith("vtc_")}
    assert len(ours) > 5
    assert all(option.help.endswith(".") or option.help.endswith(")") for option in ours.values())


def test_requests_are_unchanged_and_calls_are_rescued_by_default(configure: Any) -> None:
    configure(vtc_mode="rewrite")
    found = plan()
    assert (found.protocol.write, found.protocol.prompt_tools) == (None, False)
    assert (found.stack.request.set, found.stack.request.drop) == ({}, ())
    assert {"tag", "hermes", "invoke"} <= {dialect.name for dialect in found.reading.dialects}
    (bare,) = (dialect for dialect in found.reading.dialects if dialect.name == "bare-json")
    assert bare.section_required  # JSON counts only as the whole reply


@pytest.mark.parametrize(
    ("settings", "attribute", "value"),
    [
        ({"vtc_client": "opencode"}, "stack.client.name", "opencode"),
        ({"vtc_model": "qwen3"}, "stack.model.name", "qwen3"),
        ({"vtc_tools": "prompt"}, "protocol.prompt_tools", True),
        ({"vtc_tools": "native", "vtc_model": "qwen3"}, "protocol.write", None),
        ({"vtc_lenient": "off"}, "reading.lenient", False),
        ({"vtc_lenient": "on"}, "reading.lenient", True),
        ({"vtc_blocks": "last"}, "stack.settings.blocks", "last"),
        ({"vtc_unknown_tools": "text"}, "reading.unknown_tools", "text"),
        ({"vtc_unknown_tools": "auto"}, "reading.unknown_tools", "allow"),
        ({"vtc_max_call_bytes": 77}, "reading.max_call_bytes", 77),
    ],
)
def test_effect_of_an_option(settings: dict[str, Any], attribute: str, value: Any, configure: Any) -> None:
    configure(**settings)
    assert attrgetter(attribute)(plan()) == value


def test_the_memory_is_there_unless_it_is_switched_off(configure: Any) -> None:
    configure(vtc_mode="rewrite")
    assert options.build_memory() is not None
    configure(vtc_cache="off")
    assert options.build_memory() is None


def test_the_dialect(configure: Any) -> None:
    configure(vtc_dialect="bare-json")
    assert plan().reading.dialects[0].name == "bare-json"
    configure(vtc_tools="prompt")
    found = plan().protocol.write
    assert found is not None
    assert found.name == "bare-json"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vtc_client": "nobody"}, r"vtc_client: there is no client 'nobody'; `vtc profiles` lists all"),
        ({"vtc_model": "qwen"}, r"vtc_model: there is no model 'qwen' \(did you mean 'qwen3'\?\)"),
        ({"vtc_dialect": "hermez"}, r"vtc_dialect: there is no dialect 'hermez' \(did you mean 'hermes'\?\)"),
        ({"vtc_max_call_bytes": 0}, "vtc_max_call_bytes must be at least 1, not 0"),
        ({"vtc_max_body_bytes": -1}, "vtc_max_body_bytes must be at least 1, not -1"),
        ({"vtc_mode": "on"}, "vtc_mode must be one of rewrite, observe, off, not 'on'"),
        ({"vtc_tools": "xml"}, "vtc_tools must be one of auto, native, prompt, not 'xml'"),
        ({"vtc_lenient": "yes"}, "vtc_lenient must be one of auto, on, off, not 'yes'"),
        ({"vtc_blocks": "first"}, "vtc_blocks must be one of auto, text, last, not 'first'"),
        ({"vtc_unknown_tools": "yes"}, "vtc_unknown_tools must be one of auto, allow, text, drop, not 'yes'"),
        ({"vtc_cache": "no"}, "vtc_cache must be one of on, off, not 'no'"),
        ({"vtc_profiles": ["/nowhere/at/all"]}, "/nowhere/at/all: no such directory"),
    ],
)
def test_invalid_value_is_rejected(settings: dict[str, Any], message: str, configure: Any) -> None:
    """The message names the option and the valid values."""
    with pytest.raises(exceptions.OptionsError, match=message):
        configure(**settings)


def test_a_bad_profile_is_refused_with_all_that_is_wrong(configure: Any, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: model\nname: a\nmatch: {}\naccept: [hermess]\n")
    (tmp_path / "b.yaml").write_text("kind: client\nname: b\nmatch: 5\n")
    with pytest.raises(exceptions.OptionsError) as refused:
        configure(vtc_profiles=[str(tmp_path)])
    assert "the profiles are invalid" in str(refused.value)
    assert f"{tmp_path}/b.yaml:3: match" in str(refused.value)


def test_a_home_directory_is_understood(configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "m.yaml").write_text("kind: model\nname: mine\nmatch: {}\n")
    configure(vtc_profiles=["~/mine"], vtc_model="mine")
    assert plan().stack.model.name == "mine"


def test_empty_patterns_are_ignored(configure: Any) -> None:
    """An empty line in mitmweb's text area would match every client."""
    configure(vtc_client_patterns=[""])
    documented = "# Tools\n\n## go\nDescription: Go.\nParameters:\n- a: (required) x\nUsage:\n<go>\n<a>x</a>\n</go>\n"
    body = chat.encode_json(chat.request(tools=None, messages=[{"role": "system", "content": documented}]))
    assert options.build_planner(ctx.options).plan(Facts(user_agent="curl"), Request(body)).protocol.client_text is None
