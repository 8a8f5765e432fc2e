"""The built-in profiles: every dialect in both directions, and every model by the names that hosts use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.material import calls, content, dump_typed, merge_events, raw, read
from vtc.dialects import Description
from vtc.dialects.writing import render_tool_list, write_calls, write_result
from vtc.events import Call, Event, Tool, ToolCall, UnreadCall
from vtc.profiles import Facts, builtin_directory, load_profiles
from vtc.profiles.matching import choose_best

SHIPPED = load_profiles([builtin_directory()])
DIALECTS = SHIPPED.dialects
FRAMED = [dialect for dialect in DIALECTS.values() if dialect.rescued]
TEMPLATES = Path(__file__).parents[1] / "cases" / "templates"
"""Past turns as chat templates render them for models: two calls each."""

TOOLS = {
    "get_weather": Tool(
        "get_weather",
        "Weather of a place.",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "days": {"type": "integer"},
                "flag": {"type": "boolean"},
                "ratio": {"type": "number"},
                "opts": {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}},
                "tags": {"type": "array", "items": {"type": "string"}},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
            },
            "required": ["city"],
        },
    ),
    "get_time": Tool("get_time", "The time.", {"type": "object", "properties": {"tz": {"type": "string"}}}),
    "ping": Tool("ping", "", {"type": "object", "properties": {}}),
}
TWO: list[tuple[str, dict[str, Any]]] = [
    ("get_weather", {"city": "Paris", "days": 2}),
    ("get_time", {"tz": "Europe/Paris"}),
]
TYPED: dict[str, Any] = {
    "city": "5",
    "days": 2,
    "flag": True,
    "ratio": 1.5,
    "opts": {"a": [1, 2]},
    "tags": ["x", "true"],
    "unit": "celsius",
}


def write_samples(dialect: Description, *made: tuple[str, dict[str, Any]]) -> str:
    numbered = enumerate(made, start=1)
    found = [ToolCall(name, json.dumps(arguments), f"call0000{number}") for number, (name, arguments) in numbered]
    return write_calls(found, dialect, TOOLS)


def clean(events: list[Event]) -> list[tuple[str, Any]]:
    """Return the calls of a reply that consists of well-formed calls only."""
    assert content(events).strip() == ""
    assert [event for event in events if isinstance(event, UnreadCall)] == []
    assert [repair for event in events if isinstance(event, Call) for repair in event.repairs] == []
    return calls(events)


def reads_back(dialect: Description, *made: tuple[str, dict[str, Any]], every_cut: bool = False) -> None:
    text = write_samples(dialect, *made)
    events = read([text], [dialect], TOOLS)
    assert dump_typed(clean(events)) == dump_typed(list(made)), text
    assert raw(events) == text
    whole = merge_events(events)
    for at in range(1, len(text)) if every_cut else ():
        assert merge_events(read([text[:at], text[at:]], [dialect], TOOLS)) == whole, at
    assert merge_events(read(text, [dialect], TOOLS)) == whole


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> Description:
    return DIALECTS[request.param]


# Dialects


def test_it_is_named_after_its_file_and_opens_with_a_sample(dialect: Description) -> None:
    path = SHIPPED.sources["dialect", dialect.name].path
    assert path.stem == dialect.name
    head = path.read_text("utf-8").partition("kind:")[0]
    assert "\n#   " in head
    assert all(line.startswith("#") for line in head.splitlines())


@pytest.mark.parametrize("made", [TWO[:1], TWO, [*TWO, ("ping", {})], [("ping", {})], [TWO[0], TWO[0]]], ids=len)
def test_calls_read_back(dialect: Description, made: list[tuple[str, dict[str, Any]]]) -> None:
    reads_back(dialect, *made)


def test_typed_values_read_back(dialect: Description) -> None:
    reads_back(dialect, ("get_weather", TYPED))


def test_a_cut_anywhere_changes_nothing(dialect: Description) -> None:
    reads_back(dialect, *TWO, every_cut=True)


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "\n",
        "  x\n",
        "a\r\nb\r\n",
        "ünï 𝄞 ✿",
        "\"'\\ \\n {}[](),:",
        "123",
        "null",
        "<b>&amp;</b>",
        "```\nx\n```",
        pytest.param("x\ud83d y", id="half of a surrogate pair"),
    ],
)
def test_strings_read_back(dialect: Description, value: str) -> None:
    reads_back(dialect, ("get_time", {"tz": value}))


def test_its_own_markup_in_a_value_reads_back(dialect: Description) -> None:
    text = write_samples(dialect, *TWO)
    for part in (text, text[: len(text) // 2], text[len(text) // 2 :], f"\n{text}\n", text[-20:]):
        reads_back(dialect, ("get_time", {"tz": part}))
        reads_back(dialect, ("get_weather", {"city": part, "days": 1}))


def test_text_before_and_after_is_kept() -> None:
    for dialect in FRAMED:
        if dialect.section_anchor == "message" or dialect.ends_reply:
            continue
        text = write_samples(dialect, TWO[0])
        events = read([f"I will look.\n\n{text}\n\nDone."], [dialect], TOOLS)
        assert calls(events) == TWO[:1], dialect.name
        assert content(events).split() == ["I", "will", "look.", "Done."], dialect.name


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.txt")), ids=lambda path: path.stem)
def test_output_equals_the_chat_template(path: Path) -> None:
    assert write_samples(DIALECTS[path.stem], *TWO) == path.read_bytes().decode()


@pytest.mark.parametrize("dialect", FRAMED, ids=lambda dialect: dialect.name)
def test_no_other_dialect_steals_its_calls(dialect: Description) -> None:
    for made in (TWO, [("get_weather", TYPED)], [("get_time", {"tz": "a\nb"})], [("ping", {})]):
        text = write_samples(dialect, *made)
        assert dump_typed(clean(read([text], FRAMED, TOOLS))) == dump_typed(made), text


def test_prompt_shows_every_tool_and_the_required_call(dialect: Description) -> None:
    text = render_tool_list(dialect, list(TOOLS.values()), "the function ping")
    assert all(name in text for name in ("get_weather", "get_time", "ping", "city", "Weather of a place."))
    assert "You must call the function ping in this reply." in text or "must use the function ping" in text
    without = render_tool_list(dialect, list(TOOLS.values()))
    assert " must call " not in without.partition("You may")[0]


def test_rendered_result_contains_the_result(dialect: Description) -> None:
    assert "12 °C {x}" in write_result("get_weather", "call00001", "12 °C {x}", dialect)


# Text that is no call


@pytest.mark.parametrize(
    "text",
    [
        '[{"name": "Paris", "arguments": {}}]',
        '[{"name": "get_weather"}]',
        "[get_weather, get_time]",
        "[see(page=1)]",
        '{"name": "get_weather", "city": "Paris"}; {"x": 1}',
        ">>> get_weather()\n{}",
        "Use functions.get_weather:0 for that.",
        "An array such as functools[0] is indexed.",
        "to=get_weather",
    ],
)
def test_an_answer_stays_an_answer(text: str) -> None:
    events = read([text], DIALECTS.values(), TOOLS)
    assert calls(events) == []
    assert content(events) == text


# Models

MODELS = [
    ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-coder"),
    ("qwen3-coder:30b", "qwen3-coder"),
    ("Qwen/Qwen3.5-35B-A3B", "qwen3.5"),
    ("qwen3.6:27b", "qwen3.5"),
    ("Qwen/Qwen3-Next-80B-A3B-Thinking", "qwen3-thinking"),
    ("Qwen/QwQ-32B", "qwq"),
    ("Qwen/Qwen2-7B-Instruct", "qwen2"),
    ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5"),
    ("deepseek-ai/DeepSeek-V3.1", "deepseek-v3"),
    ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3"),
    ("deepseek-ai/DeepSeek-V4", "deepseek-v4"),
    ("deepseek-v4-flash", "deepseek-v4"),
    ("deepseek-ai/deepseek-v3.2-maas", "deepseek-v3"),
    ("deepseek-chat", "deepseek-v3"),
    ("deepseek-ai/DeepSeek-R1", "deepseek-r1"),
    ("deepseek/deepseek-r1-0528:free", "deepseek-r1"),
    ("deepseek-r1:32b", "deepseek-r1"),
    ("zai-org/GLM-4.6", "glm"),
    ("z-ai/glm-4.5-air:free", "glm"),
    ("glm-4.6:cloud", "glm"),
    ("zai-org/glm-5-maas", "glm-4.7"),
    ("accounts/fireworks/models/glm-5p2", "glm-4.7"),
    ("zai-org/GLM-4.7", "glm-4.7"),
    ("moonshotai/Kimi-K2-Instruct", "kimi-k2"),
    ("kimi-k2:1t-cloud", "kimi-k2"),
    ("moonshotai/Kimi-K2.5", "kimi-k2.5"),
    ("accounts/fireworks/routers/kimi-k2p6-turbo", "kimi-k2.5"),
    ("kimi-coding/k2p5", "kimi-k2.5"),
    ("kimi-for-coding", "kimi-k2.5"),
    ("moonshotai/kimi-k3", "kimi-k3"),
    ("kimi/k3[1m]", "kimi-k3"),
    ("sbintuitions/sarashina2.2-3b-instruct-v0.1", "sarashina"),
    ("mistralai/Devstral-Small-2507", "mistral"),
    ("mistralai/mistral-small-3.2-24b-instruct", "mistral"),
    ("magistral:24b", "mistral"),
    ("Mistral-Large-2411", "mistral"),
    ("openai/gpt-oss-120b", "gpt-oss"),
    ("gpt-oss:20b", "gpt-oss"),
    ("meta-llama/Llama-3.3-70B-Instruct", "llama3"),
    ("meta/llama-3.3-70b-instruct-maas", "llama3"),
    ("llama3.2:3b", "llama3"),
    ("Llama-4-Maverick-17B-128E-Instruct-FP8", "llama3"),
    ("google/gemma-3-27b-it", "gemma"),
    ("gemma3:12b", "gemma"),
    ("google/gemma-4-31B-it", "gemma4"),
    ("google/functiongemma-270m-it", "functiongemma"),
    ("google/gemini-2.5-pro", "gemini"),
    ("LiquidAI/LFM2-1.2B-Tool", "lfm2"),
    ("ibm-granite/granite-3.3-8b-instruct", "granite"),
    ("granite4:micro", "granite4"),
    ("microsoft/Phi-4-mini-instruct", "phi-4"),
    ("CohereLabs/c4ai-command-r7b-12-2024", "cohere"),
    ("cohere/command-a", "cohere"),
    ("ai21labs/AI21-Jamba-Mini-1.7", "jamba"),
    ("ServiceNow-AI/Apriel-5B-Instruct", "apriel"),
    ("ServiceNow-AI/Apriel-1.6-15b-Thinker", "apriel-thinker"),
    ("accounts/fireworks/models/firefunction-v2", "firefunction"),
    ("tencent/Hunyuan-A13B-Instruct", "hunyuan"),
    ("internlm/Intern-S1-mini", "internlm"),
    ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron"),
    ("nvidia/Llama-3_3-Nemotron-Super-49B-v1_5", "nemotron"),
    ("nvidia/Llama-3_1-Nemotron-Ultra-253B-v1", "nemotron-ultra"),
    ("nvidia/llama-3.1-nemotron-ultra-253b-v1", "nemotron-ultra"),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3"),
    ("swiss-ai/Apertus-8B-Instruct-2509", "apertus"),
    ("baidu/ERNIE-4.5-21B-A3B-Thinking", "ernie"),
    ("MiniMaxAI/MiniMax-M2.5", "minimax"),
    ("minimax-m2:cloud", "minimax"),
    ("MiniMaxAI/MiniMax-M3", "minimax-m3"),
    ("openai/gpt-5.3-codex", "gpt-5"),
    ("XiaomiMiMo/MiMo-V2-Flash", "mimo"),
    ("us.amazon.nova-lite-v1:0", "nova"),
    ("amazon/nova-pro-v1", "nova"),
    ("ByteDance-Seed/Seed-OSS-36B-Instruct", "seed-oss"),
    ("stepfun-ai/step3", "step"),
    ("stepfun-ai/Step-3.5-Flash", "step-3.5"),
    ("step3p5_flash_Q4_K_S.gguf", "step-3.5"),
    ("CohereLabs/command-a-reasoning-08-2025", "command-a-reasoning"),
    ("allenai/Olmo-3-32B-Think", "olmo-3-think"),
    ("deepcogito/cogito-671b-v2.1", "cogito"),
    ("rednote-hilab/dots.llm1.inst", "dots"),
    ("muse-glimmer", "muse"),
    ("x-ai/grok-4", "grok"),
    ("anthropic/claude-sonnet-4.5", "claude"),
    ("openbmb/MiniCPM5-1B", "minicpm"),
    ("allenai/Olmo-3-7B-Instruct", "olmo-3"),
    ("meituan-longcat/LongCat-Flash-Chat", "longcat"),
    ("inclusionAI/Ling-flash-2.0", "ling"),
    ("IQuestLab/IQuest-Q1", "iquest"),
    ("LLM360/K2-Horizon", "k2-horizon"),
    ("poolside/laguna-m.1:free", "laguna"),
    ("upstage/Solar-Open-100B", "solar"),
    ("upstage/Solar-Open2-250B", "solar-open2"),
    ("facebook/cwm", "cwm"),
    ("naver-hyperclovax/HyperCLOVAX-SEED-Think-14B", "hyperclova"),
    ("FreedomIntelligence/openPangu-2.0-Flash", "openpangu"),
    ("LGAI-EXAONE/EXAONE-4.0-32B", "exaone"),
    ("iflytek/Spark-2.5", "spark"),
    ("hy4-preview", "hy3"),
    ("tencent/Hy3-preview", "hy3"),
    ("plamo-3.0-prime", "plamo"),
    ("meetkai/functionary-small-v3.2", "functionary"),
    ("Salesforce/Llama-xLAM-2-8b-fc-r", "xlam"),
    ("Team-ACE/ToolACE-2-Llama-3.1-8B", "xlam"),
    ("ai-sage/GigaChat3.1-10B-A1.8B", "gigachat"),
    ("GigaChat-3.5", "gigachat-3.5"),
    ("inkling", "inkling"),
    ("arcee-ai/trinity-mini:free", "hermes-tuned"),
    ("HuggingFaceTB/SmolLM3-3B", "hermes-tuned"),
    ("skt/A.X-K2", "hermes-tuned"),
    ("tencent/Youtu-LLM-2B", "hermes-tuned"),
    ("tiiuae/Falcon-H1-34B-Instruct", "hermes-tuned"),
    ("JetBrains/Mellum2-12B-A2.5B-Thinking", "hermes-tuned"),
    ("Nanbeige/Nanbeige4.1-3B", "hermes-tuned"),
    ("baichuan-inc/Baichuan-M3-235B", "hermes-tuned"),
    ("Alibaba-NLP/Tongyi-DeepResearch-30B-A3B", "hermes-tuned"),
    ("prism-ml/Ternary-Bonsai-27B-mlx-2bit", "hermes-tuned"),
    ("prism-ml/Ternary-Bonsai-2-27B-mlx-2bit", "qwen-tuned"),
    ("PrimeIntellect/INTELLECT-3", "qwen-tuned"),
    ("Zyphra/ZAYA1-8B", "qwen-tuned"),
    ("nex-agi/Nex-N2", "qwen3.5"),
    ("Kwaipilot/KAT-Coder-V2.5-Dev", "qwen3.5"),
    ("nex-agi/DeepSeek-V3.1-Nex-N1", "deepseek-v3"),
    ("LLM360/K2-Think-V2", "hermes-thinking"),
    ("Tele-AI/TeleChat3-36B-Thinking", "hermes-thinking"),
    ("LGAI-EXAONE/K-EXAONE-236B-A23B", "exaone"),
    ("CohereLabs/North-Mini-Code-1.0", "cohere"),
    ("kakaocorp/kanana-2-30b-a3b-instruct", "kanana"),
    ("NousResearch/Hermes-3-Llama-3.1-8B", "hermes"),
    ("nousresearch/deephermes-3-llama-3-8b-preview", "hermes"),
]


@pytest.mark.parametrize(("model", "profile"), MODELS)
def test_models_by_the_names_that_hosts_give(model: str, profile: str) -> None:
    choice = choose_best(SHIPPED.models, Facts(model=model), SHIPPED.sources)
    assert choice.profile is not None
    assert choice.profile.name == profile


def test_every_model_profile_has_a_name_that_matches_it() -> None:
    everywhere = {name for name, model in SHIPPED.models.items() if not model.match.host}
    assert {profile for _, profile in MODELS} == everywhere - {"qwen3"}


def test_model_with_special_tokens_has_a_dialect_that_names_them() -> None:
    accepted = {name: model.accept for name, model in SHIPPED.models.items() if model.special_tokens}
    assert [name for name, own in accepted.items() if not any(DIALECTS[one].tokens for one in own)] == []


def test_every_dialect_is_some_models_or_some_clients() -> None:
    used = {name for model in SHIPPED.models.values() for name in (model.dialect, *model.accept)}
    used |= {client.dialect for client in SHIPPED.clients.values() if client.dialect}
    variants = {"json-block", "openhands", "tag", "function-elements", "json-in-tags", "name-parameters", "transcript"}
    assert set(DIALECTS) - used <= variants
