"""Probe a model server: identify it, detect its APIs, and list its models."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from vtc.apis import APIS, find_api
from vtc.events import ListedModel
from vtc.exchange.model_list import collect_real_names, find_model, list_model_names, read_models
from vtc.json_text import encode_json
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, choose_best, plain_model
from vtc.profiles.planner import NO_MODELS, Planner, ServerModels
from vtc.profiles.schema import API_NAMES, ServerProfile
from vtc.proxy.asking.asker import Asker, ServerAnswer
from vtc.proxy.asking.derived import derive_dialects
from vtc.proxy.asking.question import ServerQuestion
from vtc.proxy.trust import CERTIFICATE_ADVICE, Trust
from vtc.reporting.hints import WEB_PAGE_HINT, is_web_page

MODELS_PATH = "/v1/models"


def _find_other_scheme(asker: Asker, answer: ServerAnswer) -> str:
    """Return the URL with the other scheme of http and https if the server answers there; else empty."""
    url = urlsplit(asker.url)
    is_suspect = answer.status == 400 or isinstance(answer.error, ssl.SSLError | ConnectionResetError | HTTPException)
    if url.scheme == "https" and isinstance(answer.error, TimeoutError):
        is_suspect = True  # an HTTP server waits for the rest of the TLS handshake
    if not is_suspect:
        return ""
    other_url = url._replace(scheme="http" if url.scheme == "https" else "https").geturl()
    other_answer = Asker(other_url, seconds=min(1, asker.seconds), trust=Trust(ssl_insecure=True)).ask(
        ServerQuestion(MODELS_PATH)
    )
    return "" if other_answer.error else other_url


def format_wrong_scheme(url: str, other_url: str) -> str:
    """Format the advice that a server speaks http although its URL says https, or the reverse."""
    return f"{url} speaks {urlsplit(other_url).scheme}: start VTC with `vtc run {other_url}`"


STARTING_STATUSES = (502, 503, 504)
"""Statuses of a server that is still loading its model, and of a gateway without an available server."""
KEY_STATUSES = (401, 403)
"""Statuses of a server that wants a key, or another one."""


class ServerIdentity(NamedTuple):
    """The identity of a model server."""

    server: str | None
    """The name of its profile; None if unknown."""
    message: str
    """The description for the user."""
    is_available: bool = True
    """True if it answered, or does not need a probe."""
    models: tuple[str, ...] = ()
    """The models that it lists."""
    real_names: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """The names of the models behind aliases (`collect_real_names`)."""
    is_hosted: bool = False
    """True for a hosted API with a known host name."""
    has_model_list: bool = False
    """True if it answered with a list of models."""
    has_problem: bool = False
    """True if it answered the request for its models with a web page, or wants a key, or another one."""
    has_wrong_scheme: bool = False
    """True if it speaks http although its URL says https, or the reverse."""
    is_identified_by_list: bool = False
    """True if the list of models identified the server, False if its address did: requests match an address anyway."""


def identify_server(asker: Asker, profiles: Profiles) -> ServerIdentity:
    """Identify a model server.

    A hosted API with a known host name is not probed, because it would require a key and is hardly ever down. Nor is a
    server for which the user has a profile.
    """
    upstream, url = asker.url, urlsplit(asker.url)
    named = choose_best(profiles.servers, Facts(host=url.hostname or "", port=url.port or 0), profiles.sources).profile
    if named and not profiles.sources["server", named.name].builtin:
        return ServerIdentity(named.name, f"{upstream} has a profile of yours: {named.name}")
    if named and url.scheme == "https":
        line = f"{upstream} is one of: {named.description or named.name}"
        return ServerIdentity(named.name, line, is_hosted=True)
    answer = asker.ask(ServerQuestion(MODELS_PATH))
    if isinstance(answer.error, ssl.SSLCertVerificationError):
        why = f"({answer.error.verify_message}): {CERTIFICATE_ADVICE}"
        return ServerIdentity(None, f"the certificate of {upstream} is not trusted {why}")
    if other_url := _find_other_scheme(asker, answer):
        return ServerIdentity(None, format_wrong_scheme(upstream, other_url), is_available=False, has_wrong_scheme=True)
    if answer.error and not isinstance(answer.error, OSError):
        return ServerIdentity(None, f"{upstream} does not speak HTTP: is it the model server?", is_available=False)
    if answer.error:
        why = f"({answer.why}): is the model server running?"
        return ServerIdentity(None, f"{upstream} cannot be reached {why}", is_available=False)
    if answer.status in STARTING_STATUSES:
        problem = f"{upstream} answers {answer.status} to GET {MODELS_PATH}: is it still loading its model?"
        return ServerIdentity(None, problem, is_available=False)
    is_page = is_web_page(answer.body)
    if is_page or not answer.ok:
        problem = f"{upstream} answers {answer.status} to GET {MODELS_PATH}"
        needs_key = answer.status in KEY_STATUSES
        if needs_key:
            problem += ": it does not accept the key" if asker.has_key else ": it wants a key (--key-env NAME)"
        elif is_page:
            problem += f" with {WEB_PAGE_HINT}"
        else:
            problem += ", so it was not identified"
        return ServerIdentity(None, problem, has_problem=needs_key or is_page)
    listed = read_models(answer.body) or []
    models, real_names = tuple(model.name for model in listed), collect_real_names(listed)
    owner = find_by_owner(answer.json, profiles)
    if server := owner or named:
        line = f"{upstream} is {server.description or server.name}"
        identity = ServerIdentity(server.name, line, is_identified_by_list=owner is not None)
    else:
        line = f"{upstream} answers; it was not identified, which most servers do not need (--server names it)"
        identity = ServerIdentity(None, line)
    return identity._replace(models=models, real_names=real_names, has_model_list=True)


def find_by_owner(listed: Any, profiles: Profiles) -> ServerProfile | None:
    """Find a server profile by the `owned_by` fields of a list of models."""
    names = {owner for entry in list_entries(listed) if isinstance(owner := entry.get("owned_by"), str)}
    return next((server for server in profiles.servers.values() if names.intersection(server.owned_by)), None)


def list_entries(listed: Any) -> list[dict[str, Any]]:
    """Return the entries of a list of models; none if it is not such a list."""
    models = listed.get("data") if isinstance(listed, dict) else None
    return [model for model in models if isinstance(model, dict)] if isinstance(models, list) else []


def detect_apis(asker: Asker) -> tuple[str, ...]:
    """Detect the APIs that a server speaks, the best supported one first; none if the probes do not distinguish them.

    Each API is probed with an empty object, which never yields a reply; an API that is not spoken answers "not found".
    """
    return _probe_apis(asker)[0]


def _probe_apis(asker: Asker) -> tuple[tuple[str, ...], bool]:
    """Detect the APIs that a server speaks; also return True if it wants a key, or another one, before it shows them.

    Such a server rejects every path below `/v1`, even those of APIs that it does not speak.
    """
    paths = {api.name: api.place.build_path(api.place.version, "none") for api in APIS}
    answers = {name: asker.ask(ServerQuestion(path, b"{}")) for name, path in paths.items()}
    needs_key = all(answers[name].status in KEY_STATUSES for name, path in paths.items() if path.startswith("/v1/"))
    spoken = tuple(name for name, answer in answers.items() if _is_spoken(answer))
    return () if needs_key or len(spoken) == len(APIS) else spoken, needs_key


def _is_spoken(answer: ServerAnswer) -> bool:
    if answer.ok:
        return b"nexpected endpoint" not in answer.body  # LM Studio
    return answer.error is None and answer.status not in (404, 405, 501)


def list_models(asker: Asker, apis: Sequence[str]) -> tuple[str, ...]:
    """Request the list of models, from the usual path and from those of these APIs; empty if the server has none."""
    paths = dict.fromkeys([MODELS_PATH, *(api.place.lists for name in apis if (api := find_api(name)))])
    for path in paths:
        answer = asker.ask(ServerQuestion(path))
        names = tuple(list_model_names(answer.body)) if answer.ok else ()
        if names:
            return names
    return ()


MODEL_PATHS = {"llama.cpp": ("/props",), "sglang": ("/model_info", "/get_model_info"), "": ("/props",)}
"""The paths at which servers of one model describe it, by the names of their profiles; empty for an unknown server."""
MAX_DESCRIBED_MODELS = 16


def describe_models(asker: Asker, server: str, apis: Sequence[str], models: Sequence[str]) -> list[ListedModel]:
    """Ask a server to describe the models that it lists, if it has descriptions of models."""
    # Step 1: Collect the questions, each with the model that it is about.
    questions = [(models[0], ServerQuestion(path)) for path in MODEL_PATHS.get(server, ()) if len(models) == 1]
    if path := next((api.place.shows for name in apis if (api := find_api(name)) and api.place.shows), ""):
        questions = [(name, ServerQuestion(path, encode_json({"model": name}))) for name in models]
    # Step 2: Ask them, until the server fails to answer.
    described: list[ListedModel] = []
    for name, question in questions[:MAX_DESCRIBED_MODELS]:
        answer = asker.ask(question)
        if answer.error:
            break
        if answer.ok and (model := find_model(answer.body, name)):
            described.append(model)
    return described


def fetch_templates(asker: Asker, model: str = "") -> dict[str, str]:
    """Fetch the chat templates of a server's models, or of one of them, as far as it states them."""
    models = [model] if model else list_models(asker, ())
    described = describe_models(asker, "", (), models) or describe_models(asker, "", API_NAMES, models)
    return {model.name: model.template for model in described if model.template}


MAX_LISTED_MODELS = 5
"""Maximum number of models that are listed by name."""


def format_models(models: Sequence[str], default: str = "") -> str:
    """Describe the models of a server, and whether they include the default model; empty for none."""
    if not models:
        return f"the server's models are unknown: {default} replaces any requested model" if default else ""
    more = len(models) - MAX_LISTED_MODELS
    line = f"its models: {', '.join(models[:MAX_LISTED_MODELS])}{f' and {more} more' if more > 0 else ''}"
    if not default:
        return line
    is_listed = plain_model(default) in map(plain_model, models)
    return f"{line}; {default} replaces all others{'' if is_listed else ', but the server does not list it'}"


def format_translation(apis: tuple[str, ...]) -> str:
    """Describe which clients are translated to another API."""
    unspoken = [api.name for api in APIS if api.name not in apis]
    return f"it speaks {' and '.join(apis)}: clients of {', '.join(unspoken)} are translated to {apis[0]}"


class ServerFindings(NamedTuple):
    """The results of probing a model server."""

    server: str | None = None
    """The name of its profile; None if unknown."""
    apis: tuple[str, ...] | None = None
    """The APIs that it speaks; None if they were not probed, empty if the probes did not distinguish them."""
    needs_key: bool = False
    """True if the probes did not distinguish its APIs because it wants a key."""
    models: ServerModels = NO_MODELS
    lines: tuple[str, ...] = ()
    """The findings as text, for the user."""
    is_available: bool = True
    has_wrong_scheme: bool = False
    """True if it speaks http although its URL says https, or the reverse."""
    has_model_list: bool = False
    """True if it answered with a list of models."""
    is_identified_by_list: bool = False
    """True if the list of models identified the server: the profile must be set, because the address does not match it.

    A matching address may have several profiles, each for other models, so none is set then.
    """

    @property
    def settings(self) -> dict[str, Any]:
        """Values for options that the user did not set."""
        named: dict[str, Any] = {
            "server": self.server if self.is_identified_by_list else None,
            "upstream_api": self.apis,
        }
        return {name: value for name, value in named.items() if value}


CONTEXT_API = "ollama-chat"
"""The only API with a field for the context length."""


def collect_findings(asker: Asker, planner: Planner, *, describes_models: bool = True) -> ServerFindings:
    """Probe a model server for everything that the user's options do not set.

    Without `describes_models`, only its list of models and the paths of the APIs are requested.
    """
    settings = planner.settings
    identity = identify_server(asker, planner.profiles)
    if not identity.is_available:
        return ServerFindings(lines=(identity.message,), is_available=False, has_wrong_scheme=identity.has_wrong_scheme)
    lines = [] if settings.server else [identity.message]
    apis, needs_key = None, False
    if not (settings.upstream_api or identity.is_hosted):
        apis, needs_key = _probe_apis(asker)
        if needs_key and not asker.has_key:
            lines.append("its APIs are detected with a key: that of --key-env, or of the next client (or set --api)")
        elif not apis and urlsplit(asker.url).scheme == "https":
            lines.append("its APIs cannot be detected: if clients get a 404, set --api")
    profile = planner.profiles.servers.get(settings.server or identity.server or "")
    if profile and apis and profile.steps.get("context") and CONTEXT_API in apis:
        apis = (CONTEXT_API,)
    elif profile and profile.remark and not profile.steps.get("context"):
        lines.append(profile.remark)
    if apis:
        lines.append(format_translation(apis))
    models = identity.models or list_models(asker, settings.upstream_api or apis or ())
    lines.append(format_models(models, planner.default_model))
    described: list[ListedModel] = []
    if describes_models:
        server = settings.server or identity.server or ""
        described = describe_models(asker, server, settings.upstream_api or apis or (), models)
    real_names = {**identity.real_names, **collect_real_names(described)}
    derived = derive_dialects(described, planner, real_names)
    lines += [one.line for one in derived]
    return ServerFindings(
        identity.server,
        apis,
        needs_key,
        ServerModels(models, real_names, {plain_model(one.model): one.dialect for one in derived if one.dialect}),
        tuple(filter(None, lines)),
        has_model_list=identity.has_model_list,
        is_identified_by_list=identity.is_identified_by_list,
    )
