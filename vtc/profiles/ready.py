"""The keys of the steps that make a request ready for a server that would refuse it, or lose a part of it.

What each does stands in `vtc/exchange/ready`. The messages are those of servers, by which they say what they lack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

type Form = Literal["structural_tag", "gbnf", "gbnf_string", "gbnf_format", "json_schema"]
"""How a request tells the grammar of its reply."""
type Tokens = Annotated[int, msgspec.Meta(ge=1)]


class Ready(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Steps that make requests ready, each for one thing that servers refuse. One whose thing a request lacks changes
    nothing. Null leaves a step to the model's profile, and to what the server refused before."""

    billing: bool | None = None
    """Leave out the line with which Claude Code begins its prompt: it differs in each request, so that the server
    computes the whole prompt again."""
    developer: bool | None = None
    """Call the role `developer` `system`: `Unexpected message role.`, ``unknown variant `developer` ``."""
    system: Literal["folded", "first", "user", "kept"] | None = None
    """Join system messages at the beginning, and say where one amid the conversation goes: `System message must be at
    the beginning.` `folded`: the user says it, where it stands. `first`: it joins the first one, and the server
    computes the prompt anew. `user`: the user says the first one, too, before all else: `System role not supported`.
    `kept`: it stays."""
    empty: bool | None = None
    """Leave out messages that say nothing: `Assistant message must have either content or tool_calls, but not none.`"""
    turns: bool | None = None
    """Join messages of the model that follow each other."""
    ids: Literal["short", "alphanumeric9"] | None = None
    """Give calls ids of their own. `short`: of at most 40 letters, digits, `_` and `-`: `string too long. Expected a
    string with maximum length 40`. `alphanumeric9`: of nine letters and digits, also those that VTC makes: `Tool call
    IDs should be alphanumeric strings with length 9!`"""
    results: bool | None = None
    """Put results right after their calls, in their order, one for each; one of no call is said by the user: `An
    assistant message with 'tool_calls' must be followed by tool messages`, `Not the same number of function calls and
    responses`."""
    single: bool | None = None
    """Give each of several calls in one message a message of its own, with its result after it: `This model only
    supports single tool-calls at once!`"""
    after_results: bool | None = None
    """Let the model say `Done.` between results and what the user says: `Unexpected role 'user' after role 'tool'`."""
    alternate: bool | None = None
    """Join neighbours of one role: `Conversation roles must alternate user/assistant/user/assistant/...`"""
    nulls: bool | None = None
    """Write an empty text for a content that is null, as it is beside calls: `can only concatenate str (not
    "NoneType") to str`, `'NoneType' object is not iterable`."""
    text: bool | None = None
    """Write a content that is a list of texts as one text: `can only concatenate str (not "list") to str`."""
    images: Literal["noted"] | None = None
    """Put a note in the place of images and documents: `image input is not supported`."""
    choice: bool | None = None
    """Carry out `tool_choice` here: for `none` no tools are sent, for a name that tool alone; a demand is said in the
    prompt. For servers that ignore it, or refuse it: `does not support this tool_choice`."""
    thinking: Literal["unsaid"] | None = None
    """Do not say how much to think, if its clients speak another API: `"m" does not support thinking`."""
    something: Literal["first"] | bool | None = None
    """Add a message, `Hello.`, to a request that has none, which servers refuse. `first`: also where the model speaks
    first: `Conversation roles must alternate user/assistant/user/assistant/...`, `No user query found in messages.`"""
    schemas: Literal["grammar", "plain"] | Literal[False] | None = None
    """Simplify the schemas of tools. `grammar`: what only narrows (`pattern`, `format`, bounds) is said in the
    description, `$ref` is resolved, a union with null becomes the rest, what has no type gets one: `Failed to
    initialize samplers: failed to parse grammar`, `Unable to generate parser for this template`. `plain`: without
    `$schema`, `const` and `additionalProperties`, too: `Unknown name "$schema"`. Calls are still checked against, and
    fitted to, the whole schema."""
    names: bool | None = None
    """Shorten names of tools to at most 64 letters, digits, `_` and `-`; the client gets its own back: `Function name
    was a.b but must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length of 64`."""
    context: Tokens | Literal[False] | None = None
    """Tokens that the model's window has. Ollama's own API is told it (`num_ctx`) and not to cut the prompt
    (`truncate`); for others `max_tokens` is lowered to what is about left: `'max_tokens' is too large: 64000. This
    model's maximum context length is 64001 tokens`. A prompt that fills it is told as cut."""
    max_tokens: Tokens | Literal[False] | None = None
    """The longest reply that may be asked for: `the valid range of max_tokens is [1, 8192]`."""

    strict: bool | None = None
    """Declare tools as strict, with closed objects, so that the server decodes their calls by a grammar of its own
    (vLLM, SGLang): with `vtc_constrain=auto`, where it takes the API's `tools`. Tools without parameters stay as they
    are: grammars of nothing loop."""
    constrain: Form | Literal[False] | None = None
    """How the server is told to decode by a grammar, where the tools stand in the prompt (`vtc_constrain`).
    `structural_tag`: a `response_format` of vLLM, SGLang and TensorRT-LLM. `gbnf`: the field `grammar` of llama.cpp;
    `gbnf_string`: `grammar_string` of TabbyAPI; `gbnf_format`: a `response_format` of Fireworks. `json_schema`: for
    servers that take nothing else (Ollama, LM Studio), where a call is demanded and is one JSON object. False: it is
    not."""

    def steps(self) -> Mapping[str, Any]:
        """List the steps that are said, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
