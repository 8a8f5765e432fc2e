"""Quirks learned from rejections, by message."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from tests.dialects.material import CASES, plain
from vtc.exchange.asking import rejection_rules
from vtc.exchange.asking.rejection_rules import RuleTable, load_rules
from vtc.exchange.asking.rejections import LearnedSteps, learn_steps
from vtc.exchange.asking.server_error import read_error
from vtc.profiles import ProfileError
from vtc.profiles.document import load_table

pytestmark = pytest.mark.every

RULES = Path(rejection_rules.__file__).with_name("rules")


def learn(status: int, words: str, known: Mapping[str, object]) -> LearnedSteps | None:
    """Learn from an error with one text."""
    return learn_steps(read_error(words.encode(), status), known)


TOOLS = plain((CASES / "refusals.yaml").read_text("utf-8"))["tools"]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context length is 64001 "
            "tokens and your request has 24235 input tokens (64000 > 64001 - 24235).",
            39766,
        ),
        (
            "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (1000 in the "
            "messages, 8000 in the completion). Please reduce the length of the messages or completion.",
            7192,
        ),
        (
            "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens. Please "
            "reduce max_tokens.",
            None,
        ),
        ("the request exceeds the available context size (4096 tokens), try increasing it", None),
        ("max_tokens must be at least 1, got 0", None),
        ("no such endpoint", None),
        ("", None),
    ],
)
def test_the_limit_becomes_what_the_server_has_room_for(words: str, left: int | None) -> None:
    found = learn(400, words, {})
    assert (found and found.once) == left
    assert found is None or [*found.steps] == ["context"]


REFUSALS: list[tuple[str, object, str]] = [
    ("schemas", "grammar", "Failed to initialize samplers: failed to parse grammar"),
    (
        "schemas",
        "grammar",
        "Unable to generate parser for this template. Automatic parser generation failed: JSON schema",
    ),
    ("schemas", "grammar", "JSON schema conversion failed: Pattern must start with '^' and end with '$'"),
    (
        "schemas",
        "plain",
        "Invalid JSON payload received. Unknown name \"$schema\" at 'tools[0].function_declarations[0]'",
    ),
    (
        "schemas",
        "plain",
        "tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'root': when using "
        "anyOf, type should be defined in anyOf items instead of the parent schema>",
    ),
    (
        "schemas",
        "plain",
        "Unable to submit request because `add` functionDeclaration `parameters.weight` schema specified other fields "
        "alongside any_of. When using any_of, it must be the only field set.",
    ),
    ("system", "folded", "System message must be at the beginning."),
    (
        "developer",
        True,
        "messages[0].role: unknown variant `developer`, expected one of `system`",
    ),
    ("after_results", True, "Unexpected role 'user' after role 'tool'"),
    ("ids", "alphanumeric9", "Tool call IDs should be alphanumeric strings with length 9!"),
    ("ids", "alphanumeric9", "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9."),
    (
        "ids",
        "short",
        "Invalid 'messages[3].tool_calls[0].id': string too long. Expected maximum length 40",
    ),
    ("ids", "short", "messages.1.content.1.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"),
    ("names", True, "Invalid 'tools[0].function.name': string does not match pattern. Expected '^[a-zA-Z0-9_-]+$'."),
    (
        "names",
        True,
        "Function name was a.b but must be a-z, A-Z, 0-9, or contain underscores and dashes",
    ),
    ("text", True, 'can only concatenate str (not "list") to str'),
    ("text", True, "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string"),
    ("results", True, "An assistant message with 'tool_calls' must be followed by tool messages responding to each"),
    ("results", True, "Not the same number of function calls and responses"),
    ("empty", True, "Assistant message must have either content or tool_calls, but not none."),
    ("choice", True, "deepseek-reasoner does not support this tool_choice"),
    ("choice", True, "Error from provider (DeepSeek): deepseek-reasoner does not support this `tool_choice`"),
    ("max_tokens", 8192, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"),
    ("max_tokens", 16384, "max_tokens is too large: 64000. This model supports at most 16384 completion tokens"),
    ("images", "noted", "image input is not supported - hint: you may need to provide the mmproj"),
    ("images", "noted", "At most 0 image(s) may be provided in one prompt."),
    ("images", "noted", "Qwen3-Coder is not a multimodal model"),
    ("images", "noted", "This model does not support image inputs"),
    ("thinking", "unsaid", '"llama3.1:8b" does not support thinking'),
    ("thinking", "unsaid", "Unsupported parameter: 'reasoning_effort' is not supported with this model."),
    ("signatures", "anew", "The encrypted content gAAA...ehIc could not be verified."),
    ("signatures", "anew", "Corrupted thought signature."),
    ("signatures", "anew", "Unable to submit request because Thought signature is not valid."),
    ("signatures", True, "Function call is missing a thought_signature in functionCall parts."),
    ("thinking", "unsaid", "`temperature` may only be set to 1 when thinking is enabled"),
    ("empty", True, "Assistant message must have a string or a list of chunks in content or a list of tool calls."),
    ("nulls", True, "list object has no element 0"),
    ("text", True, "Invalid system message"),
    ("prompt", True, 'can only concatenate str (not "dict") to str'),
    ("nulls", True, 'can only concatenate str (not "NoneType") to str'),
    ("nulls", True, "unsupported operand type(s) for +: 'NoneType' and 'str'"),
    ("nulls", True, "'NoneType' object is not iterable"),
    ("nulls", True, "'None' has no attribute 'strip'"),
    ("nulls", True, "Invalid content type"),
    ("nulls", True, "'dict object' has no attribute 'content'"),
    ("text", True, "'list object' has no attribute 'strip'"),
    ("text", True, 'can only concatenate list (not "str") to list'),
    ("something", "first", "No user query found in messages."),
    ("something", "first", "Cannot put tools in the first user message when there's no first user message!"),
    ("something", "first", "Please ensure that function call turn comes immediately after a user turn or after a"),
    ("choice", True, "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"),
    (
        "schemas",
        "grammar",
        "json: cannot unmarshal array into Go struct field .tools.function.parameters.properties.type of type string",
    ),
    ("results", True, "Please ensure that the number of function response parts is equal to the number of function"),
    ("images", "noted", "Only text tool_result blocks are supported"),
    ("prompt", True, "The model produced output that does not match the expected peg-native format"),
    (
        "prompt",
        True,
        "1 validation error for Message\nrole\n  Value error, tool must be one of user,assistant,system,function",
    ),
    ("turns", True, "Cannot have 2 or more assistant messages at the end of the list."),
    (
        "user_last",
        True,
        "This model does not support assistant message prefill. The conversation must end with a user message.",
    ),
    ("user_last", True, "When using tools, pre-filling the `assistant` response is not supported."),
    ("user_last", True, "Assistant response prefill is incompatible with enable_thinking."),
    ("streamed", True, "Stream must be set to true"),
    ("streamed", True, "This model only support stream mode, please enable the stream parameter to access the model. "),
    ("streamed", True, "Non-streaming requests are not supported."),
    (
        "user_last",
        True,
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant",
    ),
    (
        "choice",
        True,
        "The tool_choice parameter does not support being set to required or object in thinking mode",
    ),
    ("choice", True, "tool_choice 'required' is incompatible with thinking enabled"),
    ("choice", True, "This model doesn't support the toolConfig.toolChoice.any field."),
    ("schemas", "plain", "Invalid function format: unhashable type: 'list'"),
    ("schemas", "plain", "Unsupported JSON schema fields: {'minItems', 'items'}"),
    ("schemas", "plain", "invalid request: missing 'type' or 'anyOf' key in parameter type"),
    *(
        ("system", "folded", words)
        for words in (
            "body -> messages -> 1 -> role: Input should be 'user' or 'assistant'",
            "1 validation error for Request\nmessages.1.role\n  Input should be 'user' or 'assistant' [type=lite",
            "invalid params, invalid chat setting (2013)",
            "messages[1].role: unknown variant `system`, expected `user` or `assistant` at line 1 column 90",
        )
    ),
    ("results", True, "invalid params, tool result's tool id(call_9) not found (2013)"),
    ("results", True, "messages.2: Did not find 1 `tool_result` block(s) at the beginning of this message."),
    (
        "results",
        True,
        'InvalidParameter: messages with role "tool" must be a response to a preceeding message with "tool_calls".',
    ),
    ("after_results", True, "Conversation blocks and tool result blocks cannot be provided in the same turn."),
    ("nulls", True, "The request failed because it is missing `messages.content` parameter."),
    ("text", True, "The model expects a single `text` element per message."),
    ("text", True, "Unable to tokenize message: Invalid 'content' type. Expected one of: ['str'], got list."),
    ("something", "first", "The input messages do not contain elements with the role of user"),
    ("user_last", True, "Last message must have role `user` or `tool`."),
    ("names", True, "tools.0.custom.name: String should have at most 128 characters"),
    ("images", "noted", "Output of tool call should be 'Input text'"),
    ("images", "noted", "the message at position 0 with role 'user' contains an invalid part type: image_url"),
    ("prompt", True, "Value error, Currently only named tools are supported."),
    ("prompt", True, "body.tools: Extra inputs are not permitted"),
    ("choice", True, "body.tool_choice: Input should be 'auto', 'none', 'any' or 'required'"),
    ("system", "user", "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
    ("developer", True, "Unsupported value: 'messages[0].role' does not support 'developer' with this model."),
    ("nulls", True, "Invalid type for 'messages[2].content': expected one of a string or array, but got null instead."),
    ("nulls", True, "Failed to deserialize the JSON body: messages[1]: missing field `content` at line 1 column 400"),
    ("nulls", True, "messages.1.GenericParam.content.list[TextPart,ImagePart]: Input should be a valid list"),
    ("nulls", True, "messages[1].content: invalid type: null, expected a string at line 1 column 9"),
    ("user_last", True, "Please ensure that multiturn requests end with a user role or a function response."),
    ("user_last", True, "messages: final assistant content cannot end with trailing whitespace"),
    ("something", True, "* GenerateContentRequest.contents: contents is not specified"),
    ("images", "noted", "Invalid content type. image_url is only supported by certain models."),
    ("ids", "short", "messages.3.content.0: `tool_use` ids must be unique"),
    (
        "ids",
        "short",
        "Value 'call:1' at 'messages.2.toolUse.toolUseId' failed to satisfy constraint: Member must match",
    ),
    ("max_tokens", 8192, "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]"),
    ("schemas", "plain", "function_declarations[0].parameters.properties[x].enum[0]: cannot be empty"),
    *(
        ("api", "openai-chat", words)
        for words in (
            "This model is not supported by the Responses API",
            "'type' of tool must be 'function'",
            "tools.14.type: Invalid",
            "tools.6.type: Invalid discriminator value. Expected 'function' | 'mcp'",
            "tools[1].type: Invalid value: 'namespace'. Supported values are: 'function', 'mcp', and 'web_search'.",
            "body.tools.1.FunctionTool.type: Input should be 'function'",
            'Only `type:"function"` tools are supported on this endpoint.',
            "malformed request: failed to parse JSON for /v1/responses: unknown tool type",
        )
    ),
]


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize(("step", "value", "words"), REFUSALS, ids=[words[:30] for *_, words in REFUSALS])
def test_a_refusal_teaches_a_step(step: str, value: object, words: str, status: int) -> None:
    assert learn(status, words, {}) == LearnedSteps({step: value}, kept=value != "anew")
    again = learn(status, words, {step: value})
    assert again is None or step not in again.steps


ALTERNATE = "conversation roles must alternate user/assistant/user/assistant/..."
STRICT = {"developer": True, "system": "folded", "alternate": True, "something": "first", "nulls": True}
ROLES = {"developer": True, "system": "folded"}
RESULTS = {"results": True, "after_results": True}


@pytest.mark.parametrize(
    ("words", "taught"),
    [
        (f"After the optional system message, {ALTERNATE}", [{**STRICT, **RESULTS}, {"prompt": True}]),
        (ALTERNATE, [STRICT, {"prompt": True}]),  # its templates do not support results
        (
            "Only user, system and assistant roles are supported!",
            [ROLES, {"prompt": True}],
        ),
        ("Only user, assistant and tool roles are supported!", [ROLES, {"prompt": True}]),
        ("Unexpected message role.", [ROLES]),
        *(
            (words, [{"signatures": True}, {"signatures": "anew"}])
            for words in (
                "messages.1.content.0: Invalid `signature` in `thinking` block",
                "ValidationException: ***.content.0: Invalid signature in thinking block",
            )
        ),
        ("messages.1.content.0.thinking.signature: Field required", [{"signatures": True}]),
        ("Unknown role: developer", [ROLES]),
        ("Unexpected role: system", [ROLES]),
        ("Jinja Exception: Unexpected role: tool, at row 3", [{"prompt": True}]),
        ("Unexpected role 'tool' after role 'user'", [{"results": True}]),
        (
            "After the (optional) system message(s), user and assistant roles should be alternating.",
            [STRICT, {"prompt": True}],
        ),
        *(
            (words, [{"empty": "parts", "nulls": "wanted"}])
            for words in (
                "Each message must have at least one content element.",
                "Unable to submit request because it must have a text parameter. Add a text parameter and try again.",
                "Unable to submit request because it must include at least one parts field, which describes it.",
                "The content field in the Message object at messages.1 is empty. Add a ContentBlock object to it.",
                "Invalid request: the message at position 1 with role 'assistant' must not be empty",
                "messages[1].content[0].text:text cannot be empty.",
                "The text field in the ContentBlock object at messages.1.content.0 is blank. Add text to the field.",
            )
        ),
        (
            "The messages parameter is illegal. Please check the documentation.",
            [{"something": "first", "empty": "parts", "nulls": True, "results": True}],
        ),
        ("messages.2.assistant.content: Input should be a valid string", [{"text": True, "nulls": True}]),
        ("This model only supports single tool-calls at once!", [{"single": True}, {"prompt": True}]),
        ("System role not supported", [{"system": "user"}]),
        (
            "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
            [{"schemas": "object"}, {"schemas": "grammar"}, {"schemas": "plain"}],
        ),
        *(
            (words, [{"schemas": "object"}])
            for words in (
                "The value at toolConfig.tools.0.toolSpec.inputSchema.json.type must be one of the following: object.",
                "0.function.parameters.type: Invalid discriminator value. Expected 'object'",
                "Unable to submit request because `a` functionDeclaration parameters schema should be of type OBJECT.",
            )
        ),
        *(
            (words, [{"schemas": "object"}, {"schemas": "plain"}])
            for words in (
                "Invalid schema for function 'check': schema must have type 'object' and not have "
                "'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.",
                "tools.0.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
                "Invalid schema for function 'x': In context=('properties', 'a'), array schema missing items.",
                "Invalid schema for function 'a': In context=(), object schema missing properties.",
                "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'.",
                "tools[0].function_declarations[0].parameters.properties[a].items: missing field.",
            )
        ),
    ],
)
def test_a_refusal_of_the_same_words_teaches_what_can_still_help(words: str, taught: list[dict[str, object]]) -> None:
    found: list[object] = []
    known: dict[str, object] = {}
    while more := learn(400, words, known):
        found.append(more.steps)
        known |= more.steps
    assert found == taught


def test_messages_already_sent_as_user_are_not_sent_as_system() -> None:
    found = learn(400, ALTERNATE, {"system": "user"})
    assert found is not None
    assert "system" not in found.steps


def test_wider_removal_is_kept() -> None:
    assert learn(400, "messages.1: all messages must have non-empty content", {"empty": "parts"}) is None


def test_error_with_all_words_at_once_ends() -> None:
    words = "; ".join(words for _, _, words in REFUSALS if "max_tokens" not in words)
    known: dict[str, object] = {}
    for _ in REFUSALS:
        if (more := learn(400, words, known)) is None:
            break
        known |= more.steps
    else:
        pytest.fail(f"taught again what is known: {more}")
    assert (known["schemas"], known["ids"]) == ("plain", "alphanumeric9")


@pytest.mark.parametrize(
    "words",
    [
        *("image_url is not valid", "the image could not be decoded", "no such endpoint", "Internal server error"),
        "The file names.py does not exist",
        "the message at position 0 with role 'user' contains an invalid part type: video_url",
        "input.str: Input should be a valid string",
        "Invalid type for 'messages[0].content[0].text': expected a string, but got null instead.",
        "body.messages.1.content.str: Input should be a valid string",
        "tools.0.custom.type: Invalid input",
        "tools[0].type: Invalid value: 'web_search_preview'.",
        "tools.0.custom.strict: Extra inputs are not permitted",
        "messages.0.role: Input should be 'user'",
        "Invalid API parameter, please check the documentation.",
    ],
)
def test_other_errors_teach_nothing(words: str) -> None:
    assert learn(400, words, {}) is None


@pytest.mark.parametrize("status", [400, 404, 422, 500])
def test_words_that_refuse_tools_teach_to_write_them_into_the_prompt(status: int) -> None:
    assert [words for words in TOOLS["refused"] if learn(status, words, {}) != LearnedSteps({"prompt": True})] == []


def test_words_that_refuse_something_beside_tools_do_not() -> None:
    taught = ((words, learn(400, words, {})) for words in TOOLS["others"])
    assert [words for words, found in taught if found and "prompt" in found.steps] == []


@pytest.mark.parametrize("status", [401, 403, 429, 503])
def test_no_step_helps_against_errors_that_are_not_about_the_request(status: int) -> None:
    assert learn(status, "This model does not support image inputs", {}) is None


GRAMMAR = {"constrain": object()}


@pytest.mark.parametrize(
    ("status", "words", "known", "step"),
    [
        (400, "Failed to compile structural_tag grammar", GRAMMAR, "constrain"),
        (400, "Failed to initialize samplers: failed to parse grammar", GRAMMAR, "constrain"),
        (422, "Extra inputs are not permitted", GRAMMAR, "constrain"),
        (501, "", GRAMMAR, "constrain"),
        (400, "tools.0.function.strict: Extra inputs are not permitted", {"strict": True}, "strict"),
        (500, "This server does not support grammar-constrained decoding", GRAMMAR, "constrain"),
        (500, "out of memory", GRAMMAR, None),
        (429, "grammar", GRAMMAR, None),
        (400, "", {"constrain": False}, None),
    ],
)
def test_a_grammar_is_what_a_server_may_refuse_in_any_words(
    status: int, words: str, known: dict[str, object], step: str | None
) -> None:
    found = learn(status, words, known)
    assert found == (LearnedSteps({step: False}) if step else None)


def test_words_about_another_cause_have_priority() -> None:
    found = learn(400, "System message must be at the beginning.", GRAMMAR)
    assert found is not None
    assert "system" in found.steps


@pytest.mark.parametrize(
    ("row", "place", "fault"),
    [
        ("{priority: 1, steps: {nullz: true}, text: [{words: [a]}]}", "rules[0]", "nullz"),
        ("{priority: 1, steps: {ids: long}, text: [{words: [a]}]}", "rules[0]", "long"),
        ("{priority: 1, text: [{words: [a, '(']}]}", "rules[0].text[0].words[1]", "'(' is not a regular expression"),
        ("{priority: 1, text: [{words: a}]}", "rules[0].text[0].words", 'must be a list, not "a"; write [a]'),
        ("{priority: 1, txt: [{words: [a]}]}", "rules[0].txt", "did you mean 'text'?"),
        ("{priority: 1, do: leave}", "rules[0].do", "leave"),
        ("{priority: 1000}", "", "two rules have the same priority"),
    ],
)
def test_a_bad_rule_is_an_error_with_its_place(row: str, place: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "steps.yaml"
    before, head, after = (RULES / "steps.yaml").read_text("utf-8").partition("rules:\n")
    file.write_text(f"{before}{head}  - {row}\n{after}", "utf-8")
    with pytest.raises(ProfileError) as refused:
        load_table(file, RuleTable)
    (problem,) = (problem for problem in refused.value.problems if problem.key == place)
    assert problem.file == str(file)
    assert not place or problem.line == before.count("\n") + 2
    assert fault in problem.message


def test_a_file_lists_its_rules_by_priority_and_rules_that_correct_fields_follow_each_other() -> None:
    for file in RULES.iterdir():
        priorities = [rule.priority for rule in load_table(file, RuleTable).rules]
        assert priorities == sorted(priorities)
    corrects = [bool(rule.correction) for rule in load_rules().by_priority]
    assert sum(first is not second for first, second in pairwise(corrects)) == 2


def test_a_rule_of_an_api_counts_only_for_requests_in_it() -> None:
    words = b"This model is only supported in v1/responses and not in v1/chat/completions."
    learned = {api: learn_steps(read_error(words, 404, api), {}) for api in ("openai-chat", "anthropic-messages", "")}
    assert learned["openai-chat"] == learned[""] == LearnedSteps({"api": "openai-responses"})
    assert learned["anthropic-messages"] != learned[""]
