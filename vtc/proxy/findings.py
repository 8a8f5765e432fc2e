"""What a model server shows of itself: which one it is, the APIs that it speaks, its models. It is sent no key."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from vtc.apis import APIS, find_api
from vtc.exchange.model_list import list_model_names
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, best, plain_model
from vtc.profiles.planner import Planner
from vtc.profiles.schema import ServerProfile
from vtc.proxy.asker import Asker, ServerAnswer
from vtc.proxy.trust import CERTIFICATE_ADVICE, Trust

MODELS_PATH = "/v1/models"


def _find_other_scheme(asker: Asker, answer: ServerAnswer) -> str:
    """Return the URL of a server that answers in the other one of http and https; empty if it does not."""
    url = urlsplit(asker.url)
    is_mixed_up = isinstance(answer.error, ssl.SSLError | ConnectionResetError | HTTPException)
    is_mixed_up = is_mixed_up or (url.scheme == "https" and isinstance(answer.error, TimeoutError))  # it waits for more
    if not (is_mixed_up or answer.status == 400):
        return ""
    other_url = url._replace(scheme="http" if url.scheme == "https" else "https").geturl()
    tried = Asker(other_url, seconds=min(1, asker.seconds), trust=Trust(ssl_insecure=True)).ask(MODELS_PATH)
    return "" if tried.error else other_url


def format_wrong_scheme(url: str, other_url: str) -> str:
    """Say that a server speaks the other one of http and https than its URL says."""
    return f"{url} speaks {urlsplit(other_url).scheme}: start VTC with `vtc run {other_url}`"


STARTING_STATUSES = (502, 503, 504)
"""Answers of a server that loads its model, and of a gateway before one that is not there."""


class ServerIdentity(NamedTuple):
    """The server that an upstream is."""

    server: str | None
    """Its profile; None if it is not known."""
    message: str
    """The words for the user."""
    is_there: bool = True
    """True if it answered, or need not be asked."""
    models: tuple[str, ...] = ()
    """Those that it lists."""
    is_hosted: bool = False
    """True for a hosted API that is known by its name."""
    answers: bool = False
    """True if it answered with a list."""
    has_wrong_scheme: bool = False
    """True if it speaks the other one of http and https."""
    is_listed: bool = False
    """True if its list of models tells which it is, not its address, by which requests find a profile themselves."""


def identify_server(asker: Asker, profiles: Profiles) -> ServerIdentity:
    """Find out which server an upstream is.

    A hosted API that is known by its name is not asked: it would want a key, and is hardly down. Nor is a server for
    which the user has a profile.
    """
    upstream, url = asker.url, urlsplit(asker.url)
    named = best(profiles.servers, Facts(host=url.hostname or "", port=url.port or 0), profiles.sources).profile
    if named and not profiles.sources["server", named.name].builtin:
        return ServerIdentity(named.name, f"{upstream} has a profile of yours: {named.name}")
    if named and url.scheme == "https":
        line = f"{upstream} is one of: {named.description or named.name}"
        return ServerIdentity(named.name, line, is_hosted=True)
    answer = asker.ask(MODELS_PATH)
    if isinstance(answer.error, ssl.SSLCertVerificationError):
        why = f"({answer.error.verify_message}): {CERTIFICATE_ADVICE}"
        return ServerIdentity(None, f"the certificate of {upstream} is not trusted {why}")
    if other_url := _find_other_scheme(asker, answer):
        return ServerIdentity(None, format_wrong_scheme(upstream, other_url), is_there=False, has_wrong_scheme=True)
    if answer.error and not isinstance(answer.error, OSError):
        return ServerIdentity(None, f"{upstream} does not answer in HTTP: is it the model server?", is_there=False)
    if answer.error:
        why = f"({answer.why}): is the model server running?"
        return ServerIdentity(None, f"{upstream} cannot be reached now {why}", is_there=False)
    if answer.status in STARTING_STATUSES:
        problem = f"{upstream} answers {answer.status} to GET {MODELS_PATH}: does it still load its model?"
        return ServerIdentity(None, problem, is_there=False)
    if not answer.ok:
        problem = f"{upstream} answers {answer.status} to GET {MODELS_PATH}, so it is not known which server it is"
        return ServerIdentity(None, problem)
    models = tuple(list_model_names(answer.body))
    owner = find_by_owner(answer.json, profiles)
    if server := owner or named:
        line = f"{upstream} is {server.description or server.name}"
        return ServerIdentity(server.name, line, models=models, answers=True, is_listed=owner is not None)
    line = f"{upstream} answers; its kind was not recognised, which is fine for most servers (--server names it)"
    return ServerIdentity(None, line, models=models, answers=True)


def find_by_owner(listed: Any, profiles: Profiles) -> ServerProfile | None:
    """Find the profile of a server by the owners in its list of models."""
    names = {owner for entry in list_entries(listed) if isinstance(owner := entry.get("owned_by"), str)}
    return next((server for server in profiles.servers.values() if names.intersection(server.owned_by)), None)


def list_entries(listed: Any) -> list[dict[str, Any]]:
    """Return the entries of a list of models; none if it is no such list."""
    models = listed.get("data") if isinstance(listed, dict) else None
    return [model for model in models if isinstance(model, dict)] if isinstance(models, list) else []


def detect_apis(asker: Asker) -> tuple[str, ...]:
    """Find the APIs that a server speaks, the one first that servers know best; none if that does not show.

    Each is asked with an empty object, which no server answers with a reply: what it does not speak is not found.
    """
    spoken = tuple(api.name for api in APIS if _is_spoken(asker, api.place.build_path(api.place.version, "none")))
    return () if len(spoken) == len(APIS) else spoken


def _is_spoken(asker: Asker, path: str) -> bool:
    answer = asker.ask(path, b"{}")
    if answer.ok:
        return b"nexpected endpoint" not in answer.body  # LM Studio
    return answer.error is None and answer.status not in (404, 405, 501)


def list_models(asker: Asker, apis: Sequence[str]) -> tuple[str, ...]:
    """Ask a server for its models, where clients do and where one of these APIs has its list; empty if it has none."""
    places = dict.fromkeys([MODELS_PATH, *(api.place.lists for name in apis if (api := find_api(name)))])
    names = (list_model_names(answer.body) for path in places if (answer := asker.ask(path)).ok)
    return tuple(next(filter(None, names), ()))


MAX_LISTED_MODELS = 5
"""Models that are told by their names."""


def format_models(models: Sequence[str], default: str = "") -> str:
    """Say which models a server lists, and whether the one is there that stands for all others; empty for none."""
    if not models:
        return f"the server's models are not known: it is asked for {default} in the place of any" if default else ""
    more = len(models) - MAX_LISTED_MODELS
    line = f"its models: {', '.join(models[:MAX_LISTED_MODELS])}{f' and {more} more' if more > 0 else ''}"
    if not default:
        return line
    is_there = plain_model(default) in map(plain_model, models)
    return (
        f"{line}; it is asked for {default} in the place of all others{'' if is_there else ', which is none of them'}"
    )


def format_translation(apis: tuple[str, ...]) -> str:
    """Say which clients are served by way of another API."""
    unspoken = [api.name for api in APIS if api.name not in apis]
    return f"it speaks {' and '.join(apis)}: clients of {', '.join(unspoken)} are translated to {apis[0]}"


class ServerFindings(NamedTuple):
    """What a model server showed of itself."""

    server: str | None = None
    """Its profile."""
    apis: tuple[str, ...] | None = None
    """The APIs that it speaks; None if it was not asked, empty if that does not show."""
    models: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """All that in words, for the user."""
    is_there: bool = True
    has_wrong_scheme: bool = False
    """True if it speaks the other one of http and https than its URL says."""
    is_sound: bool = False
    """True if it answered as servers do."""
    is_listed: bool = False
    """True if its profile has to be named: its address does not match it. One that does may be one of several there,
    each for other models.
    """

    @property
    def settings(self) -> dict[str, Any]:
        """Return what stands in the place of options that the user left open."""
        named: dict[str, Any] = {"server": self.server if self.is_listed else None, "upstream_api": self.apis}
        return {name: value for name, value in named.items() if value}


CONTEXT_API = "ollama-chat"
"""The one API in which a server can be told how long its context is to be."""


def collect_findings(asker: Asker, planner: Planner) -> ServerFindings:
    """Ask a model server what the user's options leave open; it is sent no key."""
    settings = planner.settings
    identity = identify_server(asker, planner.profiles)
    if not identity.is_there:
        return ServerFindings(lines=(identity.message,), is_there=False, has_wrong_scheme=identity.has_wrong_scheme)
    lines = [] if settings.server else [identity.message]
    apis = None
    if not (settings.upstream_api or identity.is_hosted):
        apis = detect_apis(asker)
        if not apis and urlsplit(asker.url).scheme == "https":
            lines.append("it does not show without a key which APIs it speaks: if clients get a 404, say --api")
    profile = planner.profiles.servers.get(settings.server or identity.server or "")
    if profile and apis and profile.steps.get("context") and CONTEXT_API in apis:
        apis = (CONTEXT_API,)
    elif profile and profile.remark and not profile.steps.get("context"):
        lines.append(profile.remark)
    lines += [format_translation(apis)] if apis else []
    models = identity.models or list_models(asker, settings.upstream_api or apis or ())
    lines.append(format_models(models, planner.default_model))
    return ServerFindings(
        identity.server,
        apis,
        models,
        tuple(filter(None, lines)),
        is_sound=identity.answers,
        is_listed=identity.is_listed,
    )
