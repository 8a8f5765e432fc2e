"""Puts a question to the model and reads the reply twice: as the server sent it, and as a client gets it through VTC.

Both are read with the API's own decoder; between them stands the very `Exchange` that the proxy runs.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from vtc.apis import Api, Reply, whole
from vtc.cli.probing.scenarios import HEADERS, Scenario
from vtc.cli.probing.template import BoundedAsker, NotAskedError
from vtc.events import NATIVE, CanonicalRequest, Message
from vtc.exchange import Session
from vtc.exchange.asking.rejections import describe_steps, learn_steps
from vtc.exchange.asking.request import MAX_REQUESTS
from vtc.exchange.model_list import list_model_names
from vtc.json_text import encode
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, best, value_at
from vtc.profiles.memory import Memory
from vtc.profiles.planner import COMMON_TAGS, Planner
from vtc.profiles.schema import ServerProfile
from vtc.proxy.asker import Asker, ServerAnswer
from vtc.proxy.findings import MODELS_PATH, detect_apis, find_by_owner, list_entries
from vtc.proxy.trust import CERTIFICATE_ADVICE
from vtc.reporting import hints

type ProbeOutcome = Literal["works", "mended", "refused", "broken", "seen", "unasked"]
"""What became of a question. `mended`: by VTC; `seen`: neither a pass nor a failure; `unasked`: no more was asked."""


# What a server says of itself: its kind, version, models, context and chat template.


class About(NamedTuple):
    """The places where servers of one kind tell of themselves; dotted paths into JSON."""

    server: str
    """The name of its profile."""
    path: str
    shows: str
    """What only they say."""
    version: str
    context: str = ""
    template: str = ""


ABOUT = (
    About(
        "llama.cpp",
        "/props",
        "default_generation_settings",
        "build_info",
        "default_generation_settings.n_ctx",
        "chat_template",
    ),
    About("ollama", "/api/version", "version", "version"),
    About("sglang", "/get_server_info", "model_path", "version", "context_length"),
    About("vllm", "/version", "version", "version"),
)
"""Asked in this order where it is not known which server it is; many more than vLLM have its path."""
ASKED_BLINDLY = ("llama.cpp", "ollama")
CONTEXTS = ("max_model_len", "context_length", "max_context_length", "meta.n_ctx", "context_window", "meta.n_ctx_train")
"""Where lists of models tell how many tokens fit into a conversation."""
OF_OLLAMA = ("ollama", "/api/show")
NO_CHAT = re.compile(r"embed|rerank|whisper|tts", re.I)
"""Models that are listed and cannot chat."""
MOST_NAMED = 8
"""Models of the server that are named where it lacks the one that was asked for."""


@dataclass(slots=True, kw_only=True)
class ServerFacts:
    """The facts about a server and about the model that it is asked for."""

    url: str
    profile: ServerProfile | None = None
    how: str = ""
    """How it was recognised."""
    version: str = ""
    model: str = ""
    models: tuple[str, ...] = ()
    context: int = 0
    """Tokens; 0 if it is not told."""
    template: str = ""
    """Jinja."""
    can: tuple[str, ...] | None = None
    """What the server says that the model can do (Ollama)."""
    apis: tuple[str, ...] = ()
    problem: str = ""
    """Why there is nothing to ask."""

    @property
    def facts(self) -> Facts:
        """Return the facts that profiles are matched by."""
        at = urlsplit(self.url)
        return Facts(model=self.model, host=at.hostname or "", port=at.port or 0)

    @property
    def where(self) -> str:
        """Host and port, as profiles name them."""
        facts = self.facts
        return f"{facts.host}:{facts.port}" if facts.port else facts.host


def learn(asker: Asker, profiles: Profiles, *, model: str, apis: tuple[str, ...], named: str) -> ServerFacts:
    """Ask a server about itself; `model`, `apis` and `named` (of its profile) are what the user knows."""
    server = ServerFacts(url=asker.url, model=model)
    listed = asker.ask(MODELS_PATH)
    if problem := _problem(listed, has_key=asker.has_key):
        server.problem = problem
        return server
    _choose(server, listed)
    _recognise(server, listed, profiles, named)
    known = server.profile.name if server.profile else ""
    for about in ABOUT:
        if about.server == known or (not known and about.server in ASKED_BLINDLY):
            _take(server, about, asker.ask(about.path).json, profiles)
            known = server.profile.name if server.profile else ""
    path = OF_OLLAMA[1] if known == OF_OLLAMA[0] else ""
    if path and server.model:
        _take_model(server, asker.ask(path, encode({"model": server.model})).json)
    if not server.model:
        server.problem = f"GET {MODELS_PATH} names no model: name one with --model"
        return server
    server.apis = apis or detect_apis(asker)
    return server


def _problem(listed: ServerAnswer, *, has_key: bool) -> str:
    if isinstance(listed.error, NotAskedError):
        return listed.why
    if isinstance(listed.error, ssl.SSLCertVerificationError):
        why = listed.error.verify_message
        return f"its certificate is not trusted ({why}): {CERTIFICATE_ADVICE}"
    if listed.error:
        return f"the server cannot be reached ({listed.why}): is it running, and is the URL right?"
    if listed.status in (401, 403):
        return (
            f"the server does not accept the key (status {listed.status})"
            if has_key
            else f"the server wants a key (status {listed.status}): put it into a variable and name that with --key-env"
        )
    return ""


def _choose(server: ServerFacts, listed: ServerAnswer) -> None:
    models = list_entries(listed.json)
    server.models = tuple(list_model_names(listed.body)) if listed.ok else ()
    if not server.model:
        server.model = next((name for name in server.models if not NO_CHAT.search(name)), "")
    own = next((model for model in models if model.get("id") == server.model), {})
    numbers = [value_at(own, path) for path in CONTEXTS]
    server.context = next((number for number in numbers if isinstance(number, int)), 0)


def _recognise(server: ServerFacts, listed: ServerAnswer, profiles: Profiles, named: str) -> None:
    by_host = best(profiles.servers, server.facts, profiles.sources).profile
    by_header = next((name for name in profiles.servers if name == listed.headers.get("server")), None)
    if named:
        server.profile, server.how = profiles.servers[named], "as you say"
    elif by_owner := find_by_owner(listed.json, profiles):
        server.profile, server.how = by_owner, f"its list of models names {' or '.join(by_owner.owned_by)} as owner"
    elif by_header:
        server.profile, server.how = profiles.servers[by_header], f"its header says `server: {by_header}`"
    elif by_host:
        server.profile, server.how = by_host, f"{server.where} matches its profile"


def _take(server: ServerFacts, about: About, answer: Any, profiles: Profiles) -> None:
    if not isinstance(answer, Mapping) or about.shows not in answer:
        return
    if server.profile is None and about.server in profiles.servers:
        server.profile, server.how = profiles.servers[about.server], f"it answers GET {about.path}"
    version, template = value_at(answer, about.version), value_at(answer, about.template)
    context = value_at(answer, about.context)
    server.version = version if isinstance(version, str) else server.version
    server.template = template if isinstance(template, str) else server.template
    server.context = context if isinstance(context, int) and context else server.context


def _take_model(server: ServerFacts, answer: Any) -> None:
    """Take what Ollama says of a model; its template is no Jinja."""
    if not isinstance(answer, Mapping):
        return
    can = answer.get("capabilities")
    server.can = tuple(map(str, can)) if isinstance(can, list) else None
    set_ = re.search(r"^num_ctx\s+(\d{1,12})\b", str(answer.get("parameters") or ""), re.M)
    about = answer.get("model_info")
    most = [value for key, value in about.items() if key.endswith(".context_length")] if isinstance(about, dict) else []
    server.context = int(set_[1]) if set_ else next((limit for limit in most if isinstance(limit, int)), server.context)


NOTHING = Reply(Message("assistant"))


@dataclass(frozen=True)
class ProbeReply:
    """The reply to one question, as it came and through VTC."""

    scenario: Scenario
    status: int = 0
    problem: str = ""
    """Why there is no reply."""
    direct: Reply = NOTHING
    """As the server sent it."""
    through: Reply = NOTHING
    """As a client gets it."""
    dialects: tuple[str, ...] = ()
    """In which VTC read the calls."""
    repairs: tuple[str, ...] = ()
    asked: bool = True
    """False if no more was asked."""
    prompted: bool = False
    """The tools stood in the prompt."""
    seconds: float = 0.0
    refusal: str = ""
    """The error of the server to what it took when it was asked again with what the error taught."""

    @property
    def refused(self) -> bool:
        """True if the server answered with an error."""
        return self.status >= 400

    @cached_property
    def faults_direct(self) -> list[str]:
        """List what is wrong with the reply as the server sent it."""
        if self.problem:
            return [self.problem]
        if self.refusal:
            return [self.refusal]
        faults = self.scenario.faults(self.direct.message.text, self.direct.message.calls)
        return [*faults, *_leaks(self.direct)] or self._broken_rules()

    @cached_property
    def faults(self) -> list[str]:
        """List what is wrong with the reply as a client gets it."""
        return [*self.misses, *_leaks(self.through)]

    @cached_property
    def misses(self) -> list[str]:
        """Say what of the question the reply misses, as a client gets it; its thinking may stand in the text."""
        calls = self.through.message.calls
        if self.problem and not calls:
            return [self.problem]
        return self.scenario.faults(self.through.message.text, calls)

    @property
    def silent(self) -> bool:
        """True if a call was wanted and there is none of any kind, but an answer."""
        return bool(self.scenario.calls) and not (self.problem or self.through.message.calls)

    @property
    def outcome(self) -> ProbeOutcome:
        """Say in a word what became of it; an answer where a call was wanted, and not demanded, says nothing."""
        if not self.asked:
            return "unasked"
        if self.refused and self.faults:
            return "refused"
        if self.silent and self.scenario.choice == "auto":
            return "seen"
        if self.faults and not (self.problem or self.scenario.calls) and self.scenario.contains:
            return "seen"
        if self.faults:
            return "broken"
        return "mended" if self.faults_direct or (self.prompted and self.scenario.calls) else "works"

    @property
    def saw(self) -> str:
        """Sum up the reply in a line for people."""
        if self.problem:
            return self.problem
        calls = ", ".join(f"{call.name}({_short(_readable(call.arguments))})" for call in self.through.message.calls)
        text = _short(self.through.message.text)
        cut = "" if self.through.complete else " (cut off: more tokens with --tokens)"
        words = "; ".join(part for part in (calls, f'text "{text}"' if text else "") if part)
        return f"{words or 'nothing'}{cut}"

    def _broken_rules(self) -> list[str]:
        calls = self.direct.message.calls
        faults = [] if self.direct.in_order else ["pieces of calls out of order"]
        ids = [call.id for call in calls]
        return faults + ["calls without ids of their own"] * (len({*filter(None, ids)}) < len(ids))


@dataclass(slots=True)
class Talk:
    """Asks one model of one server in one of its APIs."""

    asker: BoundedAsker
    server: ServerFacts
    api: Api
    limits: dict[str, Any] = field(default_factory=dict)
    taught: dict[str, str] = field(default_factory=dict)
    """What is done since the server refused a request, in the proxy's words, each with its error."""
    seeds: int = 0
    memory: Memory = field(default_factory=Memory)
    replied: bool = False
    """The model has answered, so the server has it."""

    def ask(self, scenario: Scenario, planner: Planner, *, bare: bool = False) -> ProbeReply:
        """Put a question as VTC would with these profiles; `bare`: as the client sent it."""
        heard, answer = self._ask(scenario, planner, bare=bare)
        if answer.status == 400 and (refused := [limit for limit in self.limits if limit in heard.problem]):
            self.limits = {name: value for name, value in self.limits.items() if name not in refused}
            heard, _ = self._ask(scenario, planner, bare=bare)
        return heard

    def _ask(self, scenario: Scenario, planner: Planner, *, bare: bool) -> tuple[ProbeReply, ServerAnswer]:
        self.seeds += 1
        asked = CanonicalRequest(
            model=self.server.model,
            messages=scenario.messages,
            stream=scenario.stream,
            tools=scenario.tools,
            choice=scenario.choice,
            limits=self.limits,
            answer=scenario.answer,
        )
        place = self.api.place
        path = place.build_path(place.version, self.server.model, streams=scenario.stream)
        body = encode(self.api.build_request(asked))
        headers = {**place.headers, **HEADERS.get(self.api.name, {})}
        facts = replace(self.server.facts, path=path, headers=headers)
        exchange = Session.open(self.api, body, facts, planner, f"probe {self.seeds}", self.memory)
        sent = exchange.request()
        self.asker.about = scenario.asks

        def post(body: bytes) -> ServerAnswer:
            server = exchange.server.place  # another one's, once the server has taught that
            is_own = exchange.server is self.api or bare
            at = path if is_own else server.build_path(server.version, self.server.model, streams=scenario.stream)
            return self.asker.ask(at, body, _merge_headers(headers, exchange.sent_request.headers), server.key)

        answer = post(body if bare else sent)
        refusals: dict[str, str] = {}
        refusal = ""
        for _ in range(MAX_REQUESTS - 1):
            again = None if answer.ok or answer.error else exchange.encode_after_rejection(answer.body, answer.status)
            if again is None:
                break
            refusal = refusal or _words(answer)
            refusals = {**dict.fromkeys(exchange.learned_quirks, _words(answer)), **refusals}
            answer = post(again)
        self.replied = self.replied or answer.ok
        self._stop_if_unknown(answer, path)
        if refusal and answer.ok:
            exchange.confirm_quirks()
            for name, line in describe_steps(exchange.plan.quirks.list_known()).items():
                self.taught.setdefault(line, refusals.get(name, refusal))
        prompted = exchange.plan.protocol.prompt_tools
        problem = "" if answer.ok else answer.why if answer.error else _words(answer)
        asked_it = not isinstance(answer.error, NotAskedError)
        heard = ProbeReply(scenario, answer.status, problem, asked=asked_it, prompted=prompted, seconds=answer.seconds)
        heard = replace(heard, refusal=refusal if answer.ok else "")
        if answer.error:
            return heard, answer
        if not answer.ok:
            mended = exchange.whole.extract_from_error(answer.body, answer.status)
            through = mended and _read(self.api, mended.body)
            return _with(heard, exchange, through=through or NOTHING), answer
        direct = _read(exchange.server, answer.body)
        if direct is None:
            words = hints.extract_message(answer.body) or "nothing"
            return _with(heard, exchange, problem=f"no reply of {self.api.name}: {words}"), answer
        through = _read(self.api, exchange.whole.rewrite(answer.body))
        return _with(heard, exchange, direct=direct, through=through or NOTHING), answer

    def _stop_if_unknown(self, answer: ServerAnswer, path: str) -> None:
        """Ask no more if the server has not this model, or nothing at this path: all questions would be refused so."""
        if self.replied or answer.ok or answer.error or self.asker.stopped:
            return
        taught = learn_steps(answer.status, hints.extract_message(answer.body), {})
        others = [name for name in self.server.models if name != self.server.model]
        more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
        listed = f"; it lists {', '.join(others[:MOST_NAMED])}{more}" if others else ""
        if taught and "model" in taught.steps:
            why, named = f"the server does not have the model {self.server.model}", "another with --model"
        elif answer.status in (404, 405) and not taught:
            why, named = f"the server has nothing at {path}", "another model with --model, or another API with --api"
        else:
            return
        self.asker.stopped = f"{why} ({_words(answer)}): name {named}{listed}"


def _merge_headers(headers: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return headers with changes; None leaves one out."""
    return {name: value for name, value in {**headers, **changes}.items() if value is not None}


def _leaks(reply: Reply) -> list[str]:
    """Tell where thinking stands in the text."""
    return [f"thinking stands in the text: {close}" for _, close in COMMON_TAGS if close in reply.message.text]


def _with(heard: ProbeReply, exchange: Session, **more: Any) -> ProbeReply:
    calls = exchange.report.calls
    dialects = tuple(dict.fromkeys(call["dialect"] for call in calls if call["dialect"] != NATIVE))
    repairs = tuple(dict.fromkeys(repair for call in calls for repair in call["repairs"]))
    return replace(heard, dialects=dialects, repairs=repairs, **more)


def _read(api: Api, body: bytes) -> Reply | None:
    try:
        return whole.read_replies(api, body)[0]
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _words(answer: ServerAnswer) -> str:
    words = hints.extract_message(answer.body)
    return f"status {answer.status}" + (f": {words}" if words else "")


def _readable(arguments: str) -> str:
    """Write arguments with the characters that they stand for."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except ValueError:
        return arguments


def _short(text: str, most: int = 80) -> str:
    line = re.sub(r"\s+", " ", text).strip()
    return line if len(line) <= most else f"{line[:most]}…"
