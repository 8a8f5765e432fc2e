"""The keys of a profile file and the values that they accept.

Each field is a key: the loader derives its checks, its error messages and the JSON Schema from these classes, so adding
a field adds a key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from vtc.apis import APIS, FLAGS
from vtc.apis.fields import REPLY_FIELDS
from vtc.dialects.syntax.markup import parse_marker
from vtc.dialects.text_client.documented_tools import TOOL_SECTIONS
from vtc.events import Silence
from vtc.guards.chain import Guards
from vtc.guards.patterns import check_glob, check_host, compile_expression, list_patterns, prefix_errors
from vtc.scrub import CREDENTIALS, scrub_text

# Steps that prepare a request for a server that would reject it or lose a part of it. They are implemented in
# `vtc/exchange/asking/steps`. The quoted messages are the errors of servers that need the step.


type ConstraintForm = Literal["structural_tag", "gbnf", "gbnf_string", "gbnf_format", "json_schema"]
"""The way in which a request carries the grammar of its reply."""
type TokenCount = Annotated[int, msgspec.Meta(ge=1)]


class Ready(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Steps that prepare requests, each for one cause of rejections. A step has no effect on a request that does not
    need it. Null defers to the model's profile and to the quirks learned from earlier rejections."""

    shapes: bool | None = None
    """Repair fields whose shape does not match the API, if their meaning is certain; on unless a profile says false.
    Covers arguments as text or as an object, lists in place of objects (PHP), contents that are no text, images between
    parts on Ollama's API, tools in another API's form, empty text blocks of Messages, results without the id or the
    name of their call, an empty `tools`, and unpaired surrogates: `cannot unmarshal string into Go struct field`, `[]
    is not of type 'object'`, ``missing field `function` ``, `cache_control cannot be set for empty text blocks`, `no
    low surrogate in string`."""
    billing: bool | None = None
    """Remove the line at the start of Claude Code's prompt: it differs in each request, so the server would compute the
    whole prompt again."""
    developer: bool | None = None
    """Rename the role `developer` to `system`: `Unexpected message role.`, ``unknown variant `developer` ``."""
    system: Literal["folded", "first", "user", "kept"] | None = None
    """Join the system messages at the beginning, and choose the place of later ones: `System message must be at the
    beginning.` `folded`: it becomes a user message at its place. `first`: it joins the first system message, so the
    server computes the prompt again. `user`: the first one becomes a user message, too, at the start: `System role not
    supported`. `kept`: it keeps its role and place."""
    empty: Literal["parts"] | bool | None = None
    """Remove messages without content: `Assistant message must have either content or tool_calls, but not none.`
    `parts`: also messages of blank text, and blank texts among other parts: `text content blocks must be non-empty`."""
    turns: bool | None = None
    """Join consecutive messages of the model."""
    ids: Literal["short", "alphanumeric9", "kimi"] | None = None
    """Rewrite the ids of calls. `short`: at most 40 letters, digits, `_` and `-`: `string too long. Expected a string
    with maximum length 40`. `alphanumeric9`: nine letters and digits, including the ids that VTC makes: `Tool call IDs
    should be alphanumeric strings with length 9!`. `kimi`: every id is `functions.NAME:N`, with N counted over the
    conversation, as the template of Kimi K2 prints them into the prompt; including the ids that VTC makes."""
    results: bool | None = None
    """Put results right after their calls, in order, one for each call; a result without a call is sent as a user
    message: `An assistant message with 'tool_calls' must be followed by tool messages`, `Not the same number of
    function calls and responses`."""
    single: bool | None = None
    """Split a message with multiple calls into one message per call, each followed by its result: `This model only
    supports single tool-calls at once!`"""
    signatures: Literal["anew"] | bool | None = None
    """Mark past calls that have no signature (made by another model, read from text, or older than a restart) with the
    value that Google documents for them: `Function call is missing a thought_signature in functionCall parts.` On
    Messages: remove reasoning without a signature, `thinking.signature: Field required`. `anew`: also remove sealed
    reasoning and the content that it signs, both restored by VTC and sent by a client of the server's API: ``Invalid
    `signature` in `thinking` block``, `Corrupted thought signature.`, `The encrypted content could not be verified.`"""
    cache_marks: Literal["sent", "added"] | bool | None = None
    """Cache marks (`cache_control`) of a client of another API: they are sent to servers of Messages, at most four.
    `sent`: also to this server of chat completions (OpenRouter, LiteLLM). `added`: a conversation with results and
    without marks gets them after its tools, its system prompt and its last message, because Anthropic caches only
    marked prompts. False: the marks are sent as they come."""
    after_results: bool | None = None
    """Insert an assistant message `Done.` between results and the next user message: `Unexpected role 'user' after role
    'tool'`."""
    alternate: bool | None = None
    """Join neighbouring messages of the same role: `Conversation roles must alternate
    user/assistant/user/assistant/...`"""
    nulls: Literal["wanted"] | bool | None = None
    """Replace a null content, as in messages with calls, with an empty text: `can only concatenate str (not "NoneType")
    to str`, `'NoneType' object is not iterable`. `wanted`: replace a blank text next to calls with null: `text content
    blocks must be non-empty`."""
    text: bool | None = None
    """Join a content that is a list of texts into one text: `can only concatenate str (not "list") to str`."""
    images: Literal["noted"] | None = None
    """Replace images and documents with a note: `image input is not supported`."""
    choice: bool | None = None
    """Apply `tool_choice` in VTC: `none` sends no tools, a name sends that tool alone, and a demanded call is stated in
    the prompt. For servers that ignore or reject it: `does not support this tool_choice`."""
    thinking: Literal["unsaid"] | None = None
    """Do not send the thinking effort if the client speaks another API: `"m" does not support thinking`."""
    streamed: bool | None = None
    """Request a stream even if the client wants a whole reply, which VTC then assembles: `Stream must be set to
    true`."""
    something: Literal["first"] | bool | None = None
    """Add a message, `Hello.`, to a request without messages, which servers reject. `first`: also if the conversation
    starts with the model: `Conversation roles must alternate user/assistant/user/assistant/...`, `No user query found
    in messages.`"""
    user_last: bool | None = None
    """Add a user message that asks the model to continue if its own message is the last, as in a prefill: `This model
    does not support assistant message prefill. The conversation must end with a user message.`"""
    declared: bool | None = None
    """Declare the tools that the conversation calls if the request declares none: `The toolConfig field must be defined
    when using toolUse and toolResult content blocks.`"""
    schemas: Literal["object", "grammar", "plain"] | Literal[False] | None = None
    """Restrict the schemas of tools to keywords that the server knows. `object`: the parameters are an object without
    `anyOf`, `allOf` and the like at the top, whose members are merged, and lists declare their items: `schema must have
    type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level`, `array schema missing items`.
    `grammar`: mere constraints (`pattern`, `format`, bounds) move into the description, `$ref` is resolved, optional
    parameters need not accept null, and an untyped value is one of six types: `Failed to initialize samplers: failed to
    parse grammar`, `Unable to generate parser for this template`. `plain`: one type for each value, or `anyOf` alone;
    only `properties`, `required`, `items`, `enum` and `description`: `Unknown name "$schema"`, `not a valid moonshot
    flavored json schema`. Tools whose arguments are no object are removed. Calls are still checked against, and fitted
    to, the full schema."""
    answer: bool | None = None
    """On a bridge to a Messages server, close all objects in the schema of a structured answer, and move constraints
    that Anthropic rejects into the description: `For 'object' type, 'additionalProperties' must be explicitly set to
    false`."""
    names: bool | None = None
    """Shorten the names of tools to at most 64 letters, digits, `_` and `-`, with no digit first; the client receives
    the original names: `Function name was a.b but must be a-z, A-Z, 0-9, or contain underscores and dashes, with a
    maximum length of 64`."""
    context: TokenCount | Literal[False] | None = None
    """Size of the model's context window in tokens. On Ollama's own API it is sent as `num_ctx`, together with
    `truncate`, so that the prompt is not cut; on other APIs `max_tokens` is lowered to about the remaining space:
    `'max_tokens' is too large: 64000. This model's maximum context length is 64001 tokens`. A prompt that fills the
    window is reported as cut."""
    max_tokens: TokenCount | Literal[False] | None = None
    """Maximum length of a reply that may be requested: `the valid range of max_tokens is [1, 8192]`."""
    corrections: bool | None = None
    """False: no field is removed, renamed or changed because a rejection names it, nor is a flag removed from a header
    (``Unexpected value(s) `x` for the `anthropic-beta` header``); the client receives the rejection. Steps are still
    learned, and the changes of profiles (`request.rename`) still apply."""

    strict: bool | None = None
    """Declare tools as strict, with closed objects, so that the server decodes their calls by its own grammar (vLLM,
    SGLang): with `vtc_constrain=auto`, if the server accepts the API's `tools`. Tools without parameters are unchanged,
    because grammars of an empty object loop."""
    constrain: ConstraintForm | Literal[False] | None = None
    """The form in which a grammar is sent if the tools are in the prompt (`vtc_constrain`). `structural_tag`: a
    `response_format` of vLLM, SGLang and TensorRT-LLM. `gbnf`: the field `grammar` of llama.cpp; `gbnf_string`:
    `grammar_string` of TabbyAPI; `gbnf_format`: a `response_format` of Fireworks. `json_schema`: for servers that
    accept nothing else (Ollama, LM Studio), if a call is demanded and is one JSON object. False: no grammar is sent."""

    def steps(self) -> Mapping[str, Any]:
        """List the steps that are set, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}


type ProfileText = Annotated[str, msgspec.Meta(min_length=1)]
type Glob = Annotated[str, msgspec.Meta(extra_json_schema={"format": "glob"})]
type Globs = Annotated[tuple[Glob, ...], msgspec.Meta(min_length=1)] | Glob
"""One glob or a list; `*`, `?` and `[…]` as in file names, case-insensitive."""
type HostGlob = Annotated[str, msgspec.Meta(extra_json_schema={"format": "glob of a host"})]
type HostGlobs = Annotated[tuple[HostGlob, ...], msgspec.Meta(min_length=1)] | HostGlob
"""Globs for hosts, with or without their ports."""


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Selects the requests that a profile applies to: all given tests must hold, and at least one glob of each test.

    An empty match holds for every request.
    """

    user_agent: Globs = ()
    """The User-Agent header."""
    model: Globs = ()
    """The `model` of the request's body."""
    host: HostGlobs = ()
    """The host, or host and port: `api.example.com`, `127.0.0.1:11434`."""
    path: Globs = ()
    """The path of the URL, without the query."""
    header: dict[str, Globs] = {}
    """Globs for request headers, by header name. The match fails if the request lacks the header."""
    body: dict[str, Globs] = {}
    """Globs for values of the request's JSON, by dotted path; a number is an index and `*` any key or index, as in
    `messages.0.content` or `tools.*.function.name`. If the value is a list or an object, any text inside counts."""

    def __post_init__(self) -> None:
        for globs in (self.user_agent, self.model, self.path, *self.header.values(), *self.body.values()):
            for glob in list_patterns(globs):
                check_glob(glob)
        for glob in list_patterns(self.host):
            check_host(glob)


class ReasoningTags(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The tags around a model's reasoning in its text, and the field that receives the reasoning."""

    open: ProfileText = "<think>"
    """The opening tag."""
    close: ProfileText = "</think>"
    """The closing tag."""
    ends: tuple[ProfileText, ...] = ()
    """Alternative endings, for models that omit `close` or write only a part of it."""
    prefilled: bool | Literal["asked"] = False
    """The prompt ends with `open`, so the reply begins inside, unless the request turns thinking off. `asked`: only if
    it turns thinking on. If a stream without `close` stops or has a native call, it was text: the text that was sent as
    reasoning is sent again as content."""
    to: Literal["reasoning_content", "keep", "drop"] = "reasoning_content"
    """Destination of the reasoning: the API's own field, the text (unchanged), or none (dropped)."""


class AnswerMarkers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The markers around a message that is an answer: all content inside is text, even if it looks like a call."""

    open: tuple[ProfileText, ...] = ()
    """The opening markers."""
    close: tuple[ProfileText, ...] = ()
    """The closing markers."""


class Marks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Marks in a reply that identify the model under any name."""

    dialects: tuple[str, ...] = ()
    """Dialects that only this model writes."""
    begins: tuple[ProfileText, ...] = ()
    """Texts that only this model begins a reply with."""


type Flag = Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(FLAGS)})(\.[^.,\s]+)?$")]
"""A header that lists flags, or one of its flags."""


class RequestChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Changes to the request's JSON before it is sent to the server."""

    set: dict[str, Any] = {}
    """Top-level fields and their values."""
    drop: tuple[str, ...] = ()
    """Fields that the server rejects, by dotted path as in `match.body`: `stream_options`,
    `messages.*.reasoning_content`, `tools.*.function.strict`."""
    drop_flags: tuple[Flag, ...] = ()
    """Feature flags that the server rejects, after the header that lists them:
    `anthropic-beta.prompt-caching-scope-2026-01-05`. `anthropic-beta` alone: the whole header."""
    rename: dict[str, str] = {}
    """Fields by dotted path, and the server's names for them: `{max_tokens: max_completion_tokens}`. If the new name
    exists already, the old field is removed."""


class ResponseChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Changes to the JSON of replies, streamed or not."""

    drop: tuple[str, ...] = ()
    """Names of fields to drop at the top, in choices, in messages and deltas, and in `usage`; if any is given, empty
    `tool_calls` lists are dropped, too. Calls and the text of a `refusal` are never dropped here."""

    thoughts: tuple[Literal["reasoning_content", "reasoning"], ...] = ()
    """The fields that carry reasoning to a client of chat completions; both for clients that read either one. Default:
    those of the server."""

    def __post_init__(self) -> None:
        if answer := next((name for name in self.drop if name in REPLY_FIELDS), None):
            raise ValueError(f"drop: {answer!r} is the answer itself; name fields that clients can do without")


SILENCES: frozenset[Silence] = frozenset(("empty", "thought", "announced"))


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Retries about a faulty reply.

    For `malformed`, `arguments`, `denied` and `tool_choice` the model is asked before the client sees any of the reply:
    a streaming request is then sent without streaming, and answered as a stream. For `empty`, `thought` and `announced`
    alone the stream is forwarded as it arrives and only its end is buffered; the text of the retry continues the same
    reply.
    """

    max: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    """Maximum number of retries for one request."""
    seconds: Annotated[float, msgspec.Meta(gt=0)] = 60
    """Time limit for all retries together; after it the client receives the first reply. A stream that is continued
    must have begun by then."""
    on: tuple[Literal["malformed", "arguments", "denied", "tool_choice"] | Silence, ...] = (
        *("malformed", "arguments", "tool_choice"),
        *("empty", "thought", "announced"),
    )
    """Causes of a retry: a call that cannot be parsed, arguments that do not fit, a call that a policy denied, no call
    although `tool_choice` demands one; and a turn that ends in silence: with neither text nor a call, with reasoning
    alone, or with a last sentence that announces a step and no call. The last three cause at most one retry, and never
    two in a row."""

    @property
    def silences(self) -> frozenset[Silence]:
        """The kinds of silence that cause a retry."""
        return SILENCES.intersection(self.on)

    @property
    def needs_whole(self) -> bool:
        """Return True if the whole reply must arrive before the client sees any of it."""
        return not SILENCES.issuperset(self.on)


class Exchanged(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Changes to requests and replies that servers, models and policies may each ask for."""

    request: RequestChanges = RequestChanges()
    """Changes to requests to the server."""
    response: ResponseChanges = ResponseChanges()
    """Changes to replies to the client."""
    upstream_stream: Literal["keep", "never"] | None = None
    """`never`: a streaming request that offers tools is sent without streaming, and answered as a stream."""


API_NAMES = tuple(api.name for api in APIS)
if TYPE_CHECKING:
    type ApiName = str
else:
    ApiName = Literal[API_NAMES]


class ErrorReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An error that contains a reply which the server could not parse: VTC parses it like any other reply, and if it
    calls a tool the client receives it in place of the error."""

    status: Annotated[int, msgspec.Meta(ge=400, le=599)]
    """The status of the error."""
    path: ProfileText
    """Location of the text in the error's JSON, by dotted path: `error.failed_generation`."""
    after: str = ""
    """A regular expression for the text before the reply; if it does not match, the error is passed on."""
    rest: bool = False
    """The text may be only the end of the reply: it counts only if it contains calls and nothing else."""

    def __post_init__(self) -> None:
        with prefix_errors("after"):
            compile_expression(self.after)


class ConversationFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields of a server that keeps conversations: a request has only the messages after the last reply."""

    parent: ProfileText
    """The field for the id of the last reply: `parent_id`, `previous_response_id`. Null in the first request."""
    id: str = ""
    """The field for the id of the conversation, which VTC makes: `chat_id`. Empty: there is none."""
    reply_id: ProfileText = "id"
    """Location of a reply's id in the reply, by dotted path; the first frame that has it counts."""
    repeats_system: bool = False
    """True if each request has the system messages again, because the server does not keep them."""


def names_hosts(match: Match) -> bool:
    """Return True if each host of a match belongs to a single owner."""
    hosts = [*list_patterns(match.host)]
    return bool(hosts) and all(map(_HOST.fullmatch, hosts))


VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""Names of environment variables."""
_HOST = re.compile(r"(?:\*\.(?=[^.:]+\.[^.:]))?[^*?\[\]]+")
"""Host globs that match hosts of a single owner."""


class ServerProfile(Exchanged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kind: Literal["server"] = "server"
    """Kind of this profile."""
    name: ProfileText
    """Name for options, reports and other profiles. Your profile replaces a built-in one of the same name."""
    description: str = ""
    """One line for people."""
    priority: int = 0
    """Breaks ties: of equally specific profiles the one with the highest priority is chosen."""
    match: Match
    """The requests that it applies to, by host and port."""
    owned_by: tuple[str, ...] = ()
    """The `owned_by` values in its list of models (`GET /v1/models`), by which `vtc run` recognises it."""
    api: ApiName | tuple[ApiName, ...] | None = None
    """The APIs that it speaks, one or more: clients of any other API are served by the first. Null: each client's
    own."""
    api_path: str = ""
    """The path of that API on the server if it is not the usual one: `/anthropic/v1/messages`."""
    key_env: str = ""
    """The environment variable that holds its key, for clients that send none: anyone who reaches VTC spends it. It is
    sent only to the hosts of `match.host`, which must then be names, or `*.` and a domain."""
    key_header: str = ""
    """The header for that key if it is not the API's own: `api-key` for Azure."""
    thoughts: Literal["reasoning_content", "reasoning"] | None = None
    """The field for restored reasoning, if its clients speak another API or lost the reasoning. Null: the field of its
    replies."""
    recalls: bool = True
    """True if the text of past reasoning is restored for models without a profile (`recalls` of a model)."""
    shared_fields: bool = False
    """True if it accepts the fields that chat completions and Responses share from clients of either API:
    `service_tier`, `verbosity`, `prompt_cache_key`, `prompt_cache_retention`, `metadata`, `user` and
    `safety_identifier`."""
    conversation: ConversationFields | None = None
    """The server keeps conversations, so that requests have only the new messages. Null: they have all messages."""
    tokenize: bool = False
    """`POST /tokenize` counts the tokens of a conversation (vLLM, llama.cpp), for clients of Messages."""
    remark: str = ""
    """Remark of `vtc run` about this server if no `ready.context` is given."""
    models: dict[str, str] = {}
    """Its models, by globs for the names that clients request: `{"claude-*": qwen3-coder}`."""
    ready: Ready | Literal["as-is"] = Ready()
    """Steps that prepare requests for it. `as-is`: requests are sent unchanged, regardless of the model's profile."""
    templates: bool = True
    """True if requests reach the chat templates of its models unchanged, so that the steps of the models' profiles
    apply, too."""
    why: dict[str, ProfileText] = {}
    """Reasons and sources, by the names of steps (`ready`), fields (`request.drop`, `request.rename`), flags, or keys
    of this profile; `vtc explain` shows them."""
    parts_reasoning: bool = False
    """True if the server separates the reasoning from the text, so that a reply does not begin inside the reasoning."""
    skips_billing: bool = False
    """True if the server removes the line that Claude Code puts before its prompt, which differs in each request."""
    errors: tuple[ErrorReply, ...] = ()
    """Errors that contain a reply. An error inside a stream is passed on."""
    special_tokens: dict[str, Any] = {}
    """Request fields that preserve special tokens in the text, for models that mark calls with special tokens; servers
    strip them if a request declares no tools."""

    def __post_init__(self) -> None:
        if self.key_env and not VARIABLE.fullmatch(self.key_env):  # perhaps a key: never quote it
            raise ValueError("key_env: must be the name of a variable of the environment, not the key itself")
        if self.key_header and self.key_header.lower() not in CREDENTIALS:
            raise ValueError(f"key_header: must be one of {', '.join(CREDENTIALS)}")
        if self.key_env and not names_hosts(self.match):
            raise ValueError(
                "key_env: match.host must say whose key it is: `api.example.com`, `*.example.com`, `127.0.0.1:8000`"
            )

        known = {
            *self.__struct_fields__,
            *self.steps,
            *self.request.drop,
            *self.request.drop_flags,
            *self.request.rename,
        }
        if dangling := [name for name in self.why if name not in known]:
            raise ValueError(f"why: {dangling[0]}: no such step, field or key in this profile")

    @property
    def steps(self) -> Mapping[str, Any]:
        """The steps of `ready`, by name."""
        return {} if isinstance(self.ready, str) else self.ready.steps()

    @property
    def told(self) -> list[str]:
        """Describe the fields that are removed from requests or sent otherwise, with reasons."""
        deeds = {path: f"{path} is left out" for path in (*self.request.drop, *self.request.drop_flags)}
        deeds |= {path: f"{path} is sent as {name}" for path, name in self.request.rename.items()}
        steps = {name: "true" if value is True else value for name, value in self.steps.items()}
        deeds |= {name: f"{name}: {steps.get(name, 'said')}" for name in self.why if name not in deeds}
        return [line + (f": {self.why[name]}" if name in self.why else "") for name, line in deeds.items()]

    @property
    def lends(self) -> str:
        """Describe the key that clients without one use; empty if there is none."""
        if not self.key_env:
            return ""
        hosts = ", ".join(list_patterns(self.match.host))
        return f"clients that send no key use that of {scrub_text(self.key_env)} in the environment, at {hosts} alone"


class FinalCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A call that shows the user a message and waits."""

    tool: ProfileText
    """The tool's name."""
    argument: ProfileText
    """The argument that holds the message."""


class ClientProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kind: Literal["client"] = "client"
    """Kind of this profile."""
    name: ProfileText
    """Name for options, reports and other profiles. Your profile replaces a built-in one of the same name."""
    description: str = ""
    """One line for people."""
    priority: int = 0
    """Breaks ties: of equally specific profiles the one with the highest priority is chosen."""
    match: Match
    """The requests that it applies to."""
    tool_protocol: Literal["auto", "native", "text"] = "auto"
    """`auto`: native if the request declares tools, else text."""
    dialect: str | None = None
    """Its dialect for text tool calls."""
    tool_sections: tuple[str, ...] = TOOL_SECTIONS
    """Globs for the titles of the system prompt's sections about tools; they are removed if the model receives the
    tools in another way."""
    known_tools: tuple[str, ...] = ()
    """The tools that a client which reads calls out of the text knows, including those that its prompt does not
    document: such a client carries out calls that VTC never parsed, so if a policy forbids one of these tools, its
    opener is broken up."""
    known_parameters: tuple[str, ...] = ()
    """The parameters that it knows for any tool: it reads each one wherever its tag opens inside a call."""
    call_gap: Annotated[int, msgspec.Meta(ge=0, le=9)] = 2
    """Newlines between the text and a call that is rendered for it."""
    max_calls: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Maximum number of text tool calls per reply that it can use; null is no limit."""
    extra_calls: Literal["note", "drop"] = "note"
    """Handling of further calls: a sentence that names them, which the model will see, or nothing."""
    deliver: Literal["complete", "incremental"] = "complete"
    """Delivery of a text tool call in a stream to the client. `complete`: when the call has ended. `incremental`: in
    pieces as they arrive, unless a policy applies; if the reply breaks off inside a call, the client has half of it. A
    client that reads calls out of the text receives those of its own `dialect` this way."""
    final_call: FinalCall | None = None
    """The call that ends the work for a client that reads calls out of the text; null is plain text."""
    response: ResponseChanges = ResponseChanges()
    """Changes to its replies."""
    guards: Guards = Guards()
    """Policies for all requests of this client."""


class ModelProfile(Exchanged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kind: Literal["model"] = "model"
    """Kind of this profile."""
    name: ProfileText
    """Name for options, reports and other profiles. Your profile replaces a built-in one of the same name."""
    description: str = ""
    """One line for people."""
    priority: int = 0
    """Breaks ties: of equally specific profiles the one with the highest priority is chosen."""
    match: Match
    """The requests that it applies to, by the model's name."""
    api: ApiName | tuple[ApiName, ...] | None = None
    """The API, or a list of them, in which the server is asked for this model; null means the server's
    choice."""
    tools: Literal["native", "prompt"] = "native"
    """Delivery of tools to the model: in the API's own field, if the server accepts it, or in the prompt."""
    dialect: str = "tag"
    """Dialect of its calls in the prompt and the history (`tools: prompt`)."""
    accept: tuple[str, ...] | Literal["auto"] = "auto"
    """The dialects that are expected in its replies. All other dialects with distinctive markers are read as well,
    because models also write the dialects of others; `auto` is these alone."""
    blocks: Literal["text", "last"] = "text"
    """Meaning of a JSON call in a code block after words. `text`: an example; `last`: a call, if the block is closed,
    ends the reply, and contains name and arguments of an offered tool and nothing else (the dialect `json-block`). A
    block that is the whole reply is always a call, in the dialects that use code blocks."""
    lenient: bool | None = None
    """True if malformed calls are repaired; null defers to the option and the protocol."""
    reasoning: ReasoningTags | None = None
    """The tags of its reasoning; null if it does not reason."""
    recalls: bool = False
    """True if the model should see the text of its reasoning before past calls: if a client loses that text, VTC stores
    it for as long as the conversation lasts and restores it. A model without a profile receives it if its replies show
    reasoning. Signed or encrypted reasoning is restored for every model, regardless of this key."""
    special_tokens: bool = False
    """True if its calls use special tokens, which servers may strip (see `kind: server`)."""
    ready: Ready = Ready()
    """Steps that prepare requests for its chat template, unless the server's profile overrides them."""
    markers: tuple[str, ...] = ()
    """Texts that are no part of its message (`<|im_end|>`, `<response>`), with `{name}` for the name of a tool (`
    to={name}<|message|>`); they are removed. Braces are doubled."""
    answer: AnswerMarkers = AnswerMarkers()
    """The markers around an answer; they are removed, and nothing between them is a call."""
    shown_by: Marks = Marks()
    """Marks of its replies. A model without a profile is read as this one (`accept`, `reasoning`, `markers`, `answer`)
    once a call or a reply of the conversation has one of these marks."""
    promote: bool = False
    """True if tools that clients declare in the prompt are sent to this model as the API's `tools`."""
    max_calls: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Maximum number of calls per reply; null is no limit."""
    guards: Guards = Guards()
    """Policies for the calls of this model."""
    retry: Retry | None = None
    """Retry after a faulty reply; null: never."""
    echo: Literal["text", "steer", "call"] = "text"
    """Handling of a call that repeats a call in a tool result of the request, such as a page or a file that the model
    quotes. `text`: it stays text, and is reported; `steer`: a message for the model replaces it (always for a client
    that reads calls out of the text); `call`: it is a call."""
    unknown_tools: Literal["allow", "text", "drop"] = "allow"
    """Handling of a call of a tool that was not offered. `allow`: if it is complete and framed by markers it is
    forwarded, so that the client answers that there is no such tool and its agent continues; for a client that reads
    calls out of the text, the same as `text`."""

    def __post_init__(self) -> None:
        for key, texts in (("markers", self.markers), ("answer", (*self.answer.open, *self.answer.close))):
            with prefix_errors(key):
                for text in texts:
                    parse_marker(text)


class PolicyProfile(Exchanged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rules that apply in addition to the request's client, model and server: every policy that matches."""

    kind: Literal["policy"] = "policy"
    """Kind of this profile."""
    name: ProfileText
    """Name for options and reports. Your profile replaces a built-in one of the same name."""
    description: str = ""
    """One line for people."""
    priority: int = 0
    """Policies act in the order of their priorities, the highest last and so closest to the client."""
    match: Match
    """The requests that it applies to; `{}` is every one."""
    guards: Guards = Guards()
    """The rules."""
    retry: Retry | None = None
    """Retry after a faulty reply; null defers to the model's profile."""
