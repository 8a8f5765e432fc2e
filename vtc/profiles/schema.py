"""The keys of a profile file and what they may hold.

A key exists when a field does: the loader derives its checks, its messages and the JSON Schema from these
classes, so adding a key is adding a field.
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
from vtc.guards.patterns import check_glob, check_host, each, expression, naming
from vtc.scrub import CREDENTIALS, scrub

# The keys of the steps that make a request ready for a server that would refuse it, or lose a part of it.
#
# What each does stands in `vtc/exchange/asking/steps`. The messages are those of servers, by which they say what they
# lack.


type ConstraintForm = Literal["structural_tag", "gbnf", "gbnf_string", "gbnf_format", "json_schema"]
"""How a request tells the grammar of its reply."""
type TokenCount = Annotated[int, msgspec.Meta(ge=1)]


class Ready(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Steps that make requests ready, each for one thing that servers refuse. One whose thing a request lacks changes
    nothing. Null leaves a step to the model's profile, and to what the server refused before."""

    shapes: bool | None = None
    """Put right what has not the shape that its API demands, where it is certain what it says; on unless a profile says
    false. Arguments as text or as an object, lists where objects belong (PHP), contents that are no text, images amid
    parts on Ollama's API, tools in the form of another API, empty text blocks of Messages, results without the id or
    the name of their call, an empty `tools`, halves of characters: `cannot unmarshal string into Go struct field`, `[]
    is not of type 'object'`, ``missing field `function` ``, `cache_control cannot be set for empty text blocks`, `no
    low surrogate in string`."""
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
    empty: Literal["parts"] | bool | None = None
    """Leave out messages that say nothing: `Assistant message must have either content or tool_calls, but not none.`
    `parts`: messages of blank texts, too, and such texts beside others: `text content blocks must be non-empty`."""
    turns: bool | None = None
    """Join messages of the model that follow each other."""
    ids: Literal["short", "alphanumeric9", "kimi"] | None = None
    """Give calls ids of their own. `short`: of at most 40 letters, digits, `_` and `-`: `string too long. Expected a
    string with maximum length 40`. `alphanumeric9`: of nine letters and digits, also those that VTC makes: `Tool call
    IDs should be alphanumeric strings with length 9!`. `kimi`: all are `functions.NAME:N`, N counted over the
    conversation, as the template of Kimi K2 prints them into the prompt; also those that VTC makes."""
    results: bool | None = None
    """Put results right after their calls, in their order, one for each; one of no call is sent as a user message: `An
    assistant message with 'tool_calls' must be followed by tool messages`, `Not the same number of function calls and
    responses`."""
    single: bool | None = None
    """Give each of several calls in one message a message of its own, with its result after it: `This model only
    supports single tool-calls at once!`"""
    signatures: Literal["anew"] | bool | None = None
    """Mark past calls that have no signature (made by another model, read from text, or older than a restart) with the
    value that Google documents for them: `Function call is missing a thought_signature in functionCall parts.` Of
    Messages: leave out what was thought and has no signature, `thinking.signature: Field required`. `anew`: leave out
    what is sealed, too, with what that signs: what VTC gives back, and what a client of the server's API brings:
    ``Invalid `signature` in `thinking` block``, `Corrupted thought signature.`, `The encrypted content could not be
    verified.`"""
    after_results: bool | None = None
    """Let the model say `Done.` between results and what the user says: `Unexpected role 'user' after role 'tool'`."""
    alternate: bool | None = None
    """Join neighbours of one role: `Conversation roles must alternate user/assistant/user/assistant/...`"""
    nulls: Literal["wanted"] | bool | None = None
    """Write an empty text for a content that is null, as it is beside calls: `can only concatenate str (not
    "NoneType") to str`, `'NoneType' object is not iterable`. `wanted`: write null for a blank text beside calls: `text
    content blocks must be non-empty`."""
    text: bool | None = None
    """Write a content that is a list of texts as one text: `can only concatenate str (not "list") to str`."""
    images: Literal["noted"] | None = None
    """Put a note in the place of images and documents: `image input is not supported`."""
    choice: bool | None = None
    """Carry out `tool_choice` here: for `none` no tools are sent, for a name that tool alone; a demand is said in the
    prompt. For servers that ignore it, or refuse it: `does not support this tool_choice`."""
    thinking: Literal["unsaid"] | None = None
    """Do not say how much to think, if its clients speak another API: `"m" does not support thinking`."""
    streamed: bool | None = None
    """Ask in a stream for clients that want a whole reply, too, which they get: `Stream must be set to true`."""
    something: Literal["first"] | bool | None = None
    """Add a message, `Hello.`, to a request that has none, which servers refuse. `first`: also where the model speaks
    first: `Conversation roles must alternate user/assistant/user/assistant/...`, `No user query found in messages.`"""
    user_last: bool | None = None
    """Have the user ask the model to go on where it spoke last, as in a prefill: `This model does not support assistant
    message prefill. The conversation must end with a user message.`"""
    declared: bool | None = None
    """Declare the tools that the conversation calls, where a request declares none: `The toolConfig field must be
    defined when using toolUse and toolResult content blocks.`"""
    schemas: Literal["object", "grammar", "plain"] | Literal[False] | None = None
    """Write the schemas of tools in words that the server knows. `object`: the parameters are an object, without
    `anyOf`, `allOf` and such at the top, but with the members of all of these, and lists say what their entries are:
    `schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level`, `array schema
    missing items`. `grammar`: what only narrows (`pattern`, `format`, bounds) is said in the description, `$ref` is
    resolved, a parameter that is not required need not take null, and any value is one of six types: `Failed to
    initialize samplers: failed to parse grammar`, `Unable to generate parser for this template`. `plain`: one type
    for each value, or `anyOf` alone; `properties`, `required`, `items`, `enum` and `description`, and nothing else:
    `Unknown name "$schema"`, `not a valid moonshot flavored json schema`. Tools whose arguments are no object are
    left out. Calls are still checked against, and fitted to, the whole schema."""
    names: bool | None = None
    """Shorten names of tools to at most 64 letters, digits, `_` and `-`; the client gets its own back: `Function name
    was a.b but must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length of 64`."""
    context: TokenCount | Literal[False] | None = None
    """Tokens that the model's window has. Ollama's own API is told it (`num_ctx`) and not to cut the prompt
    (`truncate`); for others `max_tokens` is lowered to what is about left: `'max_tokens' is too large: 64000. This
    model's maximum context length is 64001 tokens`. A prompt that fills it is told as cut."""
    max_tokens: TokenCount | Literal[False] | None = None
    """The longest reply that may be asked for: `the valid range of max_tokens is [1, 8192]`."""
    corrections: bool | None = None
    """False: no field is left out, renamed or given another value because a refusal names it, nor is a flag left out
    of a header (``Unexpected value(s) `x` for the `anthropic-beta` header``); the client gets the refusal. Steps are
    taught all the same, and what profiles say themselves (`request.rename`) is done."""

    strict: bool | None = None
    """Declare tools as strict, with closed objects, so that the server decodes their calls by a grammar of its own
    (vLLM, SGLang): with `vtc_constrain=auto`, where it takes the API's `tools`. Tools without parameters stay as they
    are: grammars of nothing loop."""
    constrain: ConstraintForm | Literal[False] | None = None
    """How the server is told to decode by a grammar, where the tools stand in the prompt (`vtc_constrain`).
    `structural_tag`: a `response_format` of vLLM, SGLang and TensorRT-LLM. `gbnf`: the field `grammar` of llama.cpp;
    `gbnf_string`: `grammar_string` of TabbyAPI; `gbnf_format`: a `response_format` of Fireworks. `json_schema`: for
    servers that take nothing else (Ollama, LM Studio), where a call is demanded and is one JSON object. False: it is
    not."""

    def steps(self) -> Mapping[str, Any]:
        """List the steps that are said, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}


type ProfileText = Annotated[str, msgspec.Meta(min_length=1)]
type Glob = Annotated[str, msgspec.Meta(extra_json_schema={"format": "glob"})]
type Globs = Annotated[tuple[Glob, ...], msgspec.Meta(min_length=1)] | Glob
"""One glob or several; `*`, `?` and `[…]` as in file names, upper and lower case alike."""
type HostGlob = Annotated[str, msgspec.Meta(extra_json_schema={"format": "glob of a host"})]
type HostGlobs = Annotated[tuple[HostGlob, ...], msgspec.Meta(min_length=1)] | HostGlob
"""The same for hosts, with or without their ports."""


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which requests a profile is for: all tests given must hold, and within one test any of its globs.

    No test at all holds for every request.
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
    """By name of a request header. A header that the request lacks fails the test."""
    body: dict[str, Globs] = {}
    """By dotted path into the request's JSON; a number is an index and `*` any key or index, as in
    `messages.0.content` or `tools.*.function.name`. Of a list or an object any text inside will do."""

    def __post_init__(self) -> None:
        for globs in (self.user_agent, self.model, self.path, *self.header.values(), *self.body.values()):
            for glob in each(globs):
                check_glob(glob)
        for glob in each(self.host):
            check_host(glob)


class ReasoningTags(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a model marks its thinking in the text, and where that goes."""

    open: ProfileText = "<think>"
    """The marker that begins it."""
    close: ProfileText = "</think>"
    """The marker that ends it."""
    ends: tuple[ProfileText, ...] = ()
    """Texts that end it, too, where the model leaves `close` out or writes a part of it."""
    prefilled: bool | Literal["asked"] = False
    """The prompt ends with `open`, so the reply begins inside, unless the request turns thinking off. `asked`: only if
    it turns thinking on. A stream without `close` that stops, or that has a native call, was text: what was sent of it
    as reasoning is sent again as that."""
    to: Literal["reasoning_content", "keep", "drop"] = "reasoning_content"
    """Where it goes: into the API's own field for reasoning, nowhere (it stays in the text), or away."""


class AnswerMarkers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a model marks a message that is an answer: all in it is text, also if it looks like a call."""

    open: tuple[ProfileText, ...] = ()
    """The markers that begin it."""
    close: tuple[ProfileText, ...] = ()
    """The markers that end it."""


class Marks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The marks by which the replies of a model show whose they are, whatever its name is."""

    dialects: tuple[str, ...] = ()
    """Dialects in which no other model calls."""
    begins: tuple[ProfileText, ...] = ()
    """Texts with which no other model begins a reply."""


type Flag = Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(FLAGS)})(\.[^.,\s]+)?$")]
"""A header that lists flags, or one of its flags."""


class RequestChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Changes to the request's JSON before it goes upstream."""

    set: dict[str, Any] = {}
    """Fields at its top, and their values."""
    drop: tuple[str, ...] = ()
    """Fields that the server refuses, by dotted path as in `match.body`: `stream_options`,
    `messages.*.reasoning_content`, `tools.*.function.strict`."""
    drop_flags: tuple[Flag, ...] = ()
    """Flags of features that the server refuses, after the header that lists them:
    `anthropic-beta.prompt-caching-scope-2026-01-05`. `anthropic-beta` alone: the whole header."""
    rename: dict[str, str] = {}
    """Fields by dotted path, and the names that the server has for them: `{max_tokens: max_completion_tokens}`. Where a
    field of that name stands already, the other is left out."""


class ResponseChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Changes to the JSON of replies, streamed or not."""

    drop: tuple[str, ...] = ()
    """Names of fields, dropped at the top, in choices, in messages and deltas, and in `usage`; with any of
    them empty lists of `tool_calls`, too. Calls are never dropped here."""

    thoughts: tuple[Literal["reasoning_content", "reasoning"], ...] = ()
    """The fields in which a client of chat completions is told what the model thinks; both, where clients read one or
    the other. None: those of the server."""

    def __post_init__(self) -> None:
        if answer := next((name for name in self.drop if name in REPLY_FIELDS), None):
            raise ValueError(f"drop: {answer!r} is the answer itself; name fields that clients can do without")


SILENCES: frozenset[Silence] = frozenset(("empty", "thought", "announced"))


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Asking the model once more about its reply.

    About `malformed`, `arguments`, `denied` and `tool_choice` it is asked before the client sees any of the reply: a
    streaming request is then asked without streaming, and answered as a stream. About `empty`, `thought` and
    `announced` alone the stream goes on as it comes, and only its end waits: what the model says then goes on in the
    same reply.
    """

    max: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    """Further questions for one request."""
    seconds: Annotated[float, msgspec.Meta(gt=0)] = 60
    """That all of them together may take; then the first reply is what the client gets. A stream that goes on must have
    begun by then."""
    on: tuple[Literal["malformed", "arguments", "denied", "tool_choice"] | Silence, ...] = (
        *("malformed", "arguments", "tool_choice"),
        *("empty", "thought", "announced"),
    )
    """What is asked about: a call that could not be read, arguments that do not fit, a call that a policy refused, no
    call where `tool_choice` demands one; and a turn that ends without a word: with neither text nor a call, with a
    thought alone, or with a last sentence that says what the model does next, and no call. About the last three it is
    asked once, and never twice in a row."""

    @property
    def silences(self) -> frozenset[Silence]:
        """The ways to be silent that are asked about."""
        return SILENCES.intersection(self.on)

    @property
    def needs_whole(self) -> bool:
        """True if the whole reply must be there before the client sees any of it."""
        return not SILENCES.issuperset(self.on)


class Exchanged(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The changes to requests and replies that servers, models and policies may each ask for."""

    request: RequestChanges = RequestChanges()
    """Changes to requests on their way to the server."""
    response: ResponseChanges = ResponseChanges()
    """Changes to replies on their way to the client."""
    upstream_stream: Literal["keep", "never"] | None = None
    """`never`: a streaming request that offers tools is asked without streaming, and answered as a stream."""


API_NAMES = tuple(api.name for api in APIS)
if TYPE_CHECKING:
    type ApiName = str
else:
    ApiName = Literal[API_NAMES]


class ErrorReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An error that holds the reply which the server could not read: it is read as any other, and if it calls a tool
    the client gets it in place of the error."""

    status: Annotated[int, msgspec.Meta(ge=400, le=599)]
    """The status of the error."""
    path: ProfileText
    """Where in the error's JSON the text stands, by dotted path: `error.failed_generation`."""
    after: str = ""
    """A regular expression for what stands there before the reply; where it does not, the error passes."""
    rest: bool = False
    """The text may be the end of the reply alone: it counts only if it holds calls and nothing else."""

    def __post_init__(self) -> None:
        with naming("after"):
            expression(self.after)


def names_hosts(match: Match) -> bool:
    """True if all hosts of a match are of one owner each."""
    hosts = [*each(match.host)]
    return bool(hosts) and all(map(_HOST.fullmatch, hosts))


VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""Names of variables of the environment."""
_HOST = re.compile(r"(?:\*\.(?=[^.:]+\.[^.:]))?[^*?\[\]]+")
"""Globs for hosts that stand for those of one owner."""


class ServerProfile(Exchanged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kind: Literal["server"] = "server"
    """What this profile is about."""
    name: ProfileText
    """What it is called by: options, reports and other profiles name it. A profile of yours
    with the name of a built-in one takes its place."""
    description: str = ""
    """One line for people."""
    priority: int = 0
    """Of several that match equally well the one with the highest is taken."""
    match: Match
    """The requests that it is for, by host and port."""
    owned_by: tuple[str, ...] = ()
    """The `owned_by` of models in its list of them (`GET /v1/models`), by which `vtc run` recognises it."""
    api: ApiName | tuple[ApiName, ...] | None = None
    """The API that it speaks, or several: clients of any other are served by the first. Null: that of each client."""
    api_path: str = ""
    """The path of that API on the server, where it is not the usual one: `/anthropic/v1/messages`."""
    key_env: str = ""
    """The variable of the environment that holds its key, for clients that send none: whoever reaches VTC spends it.
    It is sent to the hosts of `match.host` alone, which must then be names, or `*.` and a domain."""
    key_header: str = ""
    """The header for that key, where it is not that of its API: `api-key` for Azure."""
    thoughts: Literal["reasoning_content", "reasoning"] | None = None
    """The field in which it is given what the model thought before, where its clients speak another API or lost that.
    Null: the one in which its replies tell it."""
    recalls: bool = True
    """Whether models without a profile are given back the text of what they thought (`recalls` of a model)."""
    tokenize: bool = False
    """`POST /tokenize` counts the tokens of a conversation (vLLM, llama.cpp), for clients of Messages."""
    remark: str = ""
    """What `vtc run` says of it where no `ready.context` is given."""
    models: dict[str, str] = {}
    """Its models, by globs for the names that clients ask for: `{"claude-*": qwen3-coder}`."""
    ready: Ready | Literal["as-is"] = Ready()
    """Steps that make requests ready for it. `as-is`: it takes them as they come, whatever the model's profile says."""
    templates: bool = True
    """Whether requests reach the chat templates of its models as they are, so that the steps of their profiles are
    taken, too."""
    why: dict[str, ProfileText] = {}
    """Why it needs that, and who says so, by the names of steps (`ready`), of fields (`request.drop`, `request.rename`)
    or flags, and of keys of this profile; `vtc explain` shows it."""
    parts_reasoning: bool = False
    """It takes the reasoning out of the text itself, so that a reply does not begin inside of it."""
    skips_billing: bool = False
    """It keeps the line that Claude Code puts before its prompt, other ones in each request, out of the prompt."""
    errors: tuple[ErrorReply, ...] = ()
    """Errors that hold a reply. One within a stream passes."""
    special_tokens: dict[str, Any] = {}
    """Fields of the request that keep special tokens in the text, for models whose calls are marked by some; servers
    strip them when a request declares no tools."""

    def __post_init__(self) -> None:
        if self.key_env and not VARIABLE.fullmatch(self.key_env):  # a key, perhaps, which no message may show
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
        """Say what is left out of requests to it, or written otherwise, and why."""
        deeds = {path: f"{path} is left out" for path in (*self.request.drop, *self.request.drop_flags)}
        deeds |= {path: f"{path} is sent as {name}" for path, name in self.request.rename.items()}
        steps = {name: "true" if value is True else value for name, value in self.steps.items()}
        deeds |= {name: f"{name}: {steps.get(name, 'said')}" for name in self.why if name not in deeds}
        return [line + (f": {self.why[name]}" if name in self.why else "") for name, line in deeds.items()]

    @property
    def lends(self) -> str:
        """Say whose key clients are lent; empty if none."""
        if not self.key_env:
            return ""
        hosts = ", ".join(each(self.match.host))
        return f"clients that send no key use that of {scrub(self.key_env)} in the environment, at {hosts} alone"


class FinalCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A call that shows the user a message and waits."""

    tool: ProfileText
    """The tool's name."""
    argument: ProfileText
    """Its argument that holds the message."""


class ClientProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kind: Literal["client"] = "client"
    """What this profile is about."""
    name: ProfileText
    """What it is called by: options, reports and other profiles name it. A profile of yours
    with the name of a built-in one takes its place."""
    description: str = ""
    """One line for people."""
    priority: int = 0
    """Of several that match equally well the one with the highest is taken."""
    match: Match
    """The requests that it is for."""
    tool_protocol: Literal["auto", "native", "text"] = "auto"
    """`auto`: native when the request declares tools, else text."""
    dialect: str | None = None
    """How it writes and reads calls in text."""
    tool_sections: tuple[str, ...] = TOOL_SECTIONS
    """Globs for the titles of the sections of its system prompt that are about tools and how to call them; they are
    taken out when the model is told about tools in another way."""
    known_tools: tuple[str, ...] = ()
    """The tools that a client which reads calls out of the text knows how to use, also those that its prompt does not
    document: such a client carries out what VTC never reads, so where a policy forbids one, its opener is parted."""
    known_parameters: tuple[str, ...] = ()
    """The parameters that it knows of any tool: it reads each wherever it is opened in a call."""
    call_gap: Annotated[int, msgspec.Meta(ge=0, le=9)] = 2
    """Newlines between the text and a call that is written for it."""
    max_calls: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Calls of one reply that it can use, in text; null is no limit."""
    extra_calls: Literal["note", "drop"] = "note"
    """What becomes of more: a sentence that names them, which the model will see, or nothing."""
    deliver: Literal["complete", "incremental"] = "complete"
    """How a call in the text of a stream reaches the client. `complete`: when all of it was read. `incremental`: in
    pieces as it is written, where no policy holds; if the reply breaks off in a call, the client has half of it. A
    client that reads calls out of the text gets so those of its own `dialect`."""
    final_call: FinalCall | None = None
    """How a client that reads calls out of the text is told that the work ends here; null is plain text."""
    guards: Guards = Guards()
    """Policies for all that this client asks."""


class ModelProfile(Exchanged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    kind: Literal["model"] = "model"
    """What this profile is about."""
    name: ProfileText
    """What it is called by: options, reports and other profiles name it. A profile of yours
    with the name of a built-in one takes its place."""
    description: str = ""
    """One line for people."""
    priority: int = 0
    """Of several that match equally well the one with the highest is taken."""
    match: Match
    """The requests that it is for, by the model's name."""
    api: ApiName | tuple[ApiName, ...] | None = None
    """The API, or several, in which the server is asked for it; null leaves it to the server's profile."""
    tools: Literal["native", "prompt"] = "native"
    """How tools reach the model: as the API's own field, while the server takes it, or written into the prompt."""
    dialect: str = "tag"
    """How calls are written for it in prompt and history (`tools: prompt`)."""
    accept: tuple[str, ...] | Literal["auto"] = "auto"
    """The dialects that its replies are expected in. Every dialect with markers of its own is read besides, as models
    write those of others, too; `auto` is these alone."""
    blocks: Literal["text", "last"] = "text"
    """What a call is that stands as JSON in a code block after words. `text`: an example; `last`: a call, where the
    block is closed, ends the reply, and holds name and arguments of an offered tool and nothing else (the dialect
    `json-block`). A block that is the whole reply is a call anyway, in the dialects that write so."""
    lenient: bool | None = None
    """Whether malformed calls are repaired; null leaves it to the option and the protocol."""
    reasoning: ReasoningTags | None = None
    """How it marks its thinking; null if it does not."""
    recalls: bool = False
    """Whether it wants to see the text of what it thought before the calls of past turns: where a client loses that,
    it is kept for as long as the conversation goes on, and given back. A model without a profile gets it, if its
    replies tell it. What its server signed or encrypted is given back to every model, whatever this says."""
    special_tokens: bool = False
    """Whether its calls are marked by special tokens, which servers may strip (see `kind: server`)."""
    ready: Ready = Ready()
    """Steps that make requests ready for its chat template, unless the server's profile says otherwise."""
    markers: tuple[str, ...] = ()
    """Texts that are no part of what it says (`<|im_end|>`, `<response>`), with `{name}` for the name of a tool
    (` to={name}<|message|>`); they are taken out. Braces are doubled."""
    answer: AnswerMarkers = AnswerMarkers()
    """The markers around an answer, which are taken out, too: nothing between them is a call."""
    shown_by: Marks = Marks()
    """Marks of its replies. A model that no profile knows is read as this one (`accept`, `reasoning`, `markers`,
    `answer`) once a call of it bore one, or a reply of the conversation."""
    promote: bool = False
    """For clients that declare tools in the prompt: give them to this model as the API's `tools`."""
    max_calls: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Calls kept of one reply; null is no limit."""
    guards: Guards = Guards()
    """Policies for the calls of this model."""
    retry: Retry | None = None
    """Ask it again about a faulty reply; null: never."""
    echo: Literal["text", "steer", "call"] = "text"
    """What becomes of a call that stands in a result of the request: a page or a file that the model
    repeats. `text`: it stays text, and the report says so; `steer`: a message stands in its place, for the model to see
    (as always for a client that reads calls out of the text); `call`: it is made."""
    unknown_tools: Literal["allow", "text", "drop"] = "allow"
    """What becomes of a call of a tool that was not offered. `allow`: if it is whole and framed by markers it leaves as
    written, so that the client answers that there is no such tool and its agent goes on; for a client that reads calls
    out of the text, as `text`."""

    def __post_init__(self) -> None:
        for key, texts in (("markers", self.markers), ("answer", (*self.answer.open, *self.answer.close))):
            with naming(key):
                for text in texts:
                    parse_marker(text)


class PolicyProfile(Exchanged, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What holds besides the one client, model and server that a request gets: every policy that matches."""

    kind: Literal["policy"] = "policy"
    """What this profile is about."""
    name: ProfileText
    """What it is called by: options, reports name it. A profile of yours with the name of
    a built-in one takes its place."""
    description: str = ""
    """One line for people."""
    priority: int = 0
    """Policies act in the order of their priorities, the highest last and so closest to the client."""
    match: Match
    """The requests that it holds for; `{}` is every one."""
    guards: Guards = Guards()
    """The rules."""
    retry: Retry | None = None
    """Ask the model again about a faulty reply; null leaves it to the model's profile."""
