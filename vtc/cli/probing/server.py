"""What a server says of itself: its kind, version, models, context and chat template."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from vtc.apis import beside
from vtc.json_text import encode
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, best, value_at
from vtc.profiles.schema import ServerProfile
from vtc.proxy.asker import Answer, Asker
from vtc.proxy.recognise import LIST, entries, owned, spoken


class About(NamedTuple):
    """Where servers of one kind tell of themselves; dotted paths into JSON."""

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


@dataclass(slots=True, kw_only=True)
class Server:
    """What is known of a server and of the model that it is asked for."""

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
        """What profiles are matched by."""
        at = urlsplit(self.url)
        return Facts(model=self.model, host=at.hostname or "", port=at.port or 0)

    @property
    def where(self) -> str:
        """Host and port, as profiles name them."""
        facts = self.facts
        return f"{facts.host}:{facts.port}" if facts.port else facts.host


def learn(asker: Asker, profiles: Profiles, *, model: str, apis: tuple[str, ...], named: str) -> Server:
    """Ask a server about itself; `model`, `apis` and `named` (of its profile) are what the user knows."""
    server = Server(url=asker.url, model=model)
    listed = asker.ask(LIST)
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
        server.problem = f"GET {LIST} names no model: name one with --model"
        return server
    server.apis = apis or spoken(asker)
    return server


def _problem(listed: Answer, *, has_key: bool) -> str:
    if isinstance(listed.error, ssl.SSLCertVerificationError):
        why = listed.error.verify_message
        return f"its certificate is not trusted ({why}): put the certificate of who signed it into SSL_CERT_FILE"
    if listed.error:
        return f"the server cannot be reached ({listed.why}): is it running, and is the URL right?"
    if listed.status in (401, 403):
        return (
            f"the server does not accept the key (status {listed.status})"
            if has_key
            else f"the server wants a key (status {listed.status}): put it into a variable and name that with --key-env"
        )
    return ""


def _choose(server: Server, listed: Answer) -> None:
    found = entries(listed.json)
    server.models = tuple(beside.names_of(listed.body)) if listed.ok else ()
    if not server.model:
        server.model = next((name for name in server.models if not NO_CHAT.search(name)), "")
    own = next((one for one in found if one.get("id") == server.model), {})
    numbers = [value_at(own, path) for path in CONTEXTS]
    server.context = next((one for one in numbers if isinstance(one, int)), 0)


def _recognise(server: Server, listed: Answer, profiles: Profiles, named: str) -> None:
    by_host = best(profiles.servers, server.facts, profiles.sources).profile
    by_header = next((one for one in profiles.servers if one == listed.headers.get("server")), None)
    if named:
        server.profile, server.how = profiles.servers[named], "as you say"
    elif by_owner := owned(listed.json, profiles):
        server.profile, server.how = by_owner, f"its list of models names {' or '.join(by_owner.owned_by)} as owner"
    elif by_header:
        server.profile, server.how = profiles.servers[by_header], f"its header says `server: {by_header}`"
    elif by_host:
        server.profile, server.how = by_host, f"{server.where} matches its profile"


def _take(server: Server, about: About, said: Any, profiles: Profiles) -> None:
    if not isinstance(said, Mapping) or about.shows not in said:
        return
    if server.profile is None and about.server in profiles.servers:
        server.profile, server.how = profiles.servers[about.server], f"it answers GET {about.path}"
    version, template = value_at(said, about.version), value_at(said, about.template)
    context = value_at(said, about.context)
    server.version = version if isinstance(version, str) else server.version
    server.template = template if isinstance(template, str) else server.template
    server.context = context if isinstance(context, int) and context else server.context


def _take_model(server: Server, said: Any) -> None:
    """Take what Ollama says of a model; its template is no Jinja."""
    if not isinstance(said, Mapping):
        return
    can = said.get("capabilities")
    server.can = tuple(map(str, can)) if isinstance(can, list) else None
    set_ = re.search(r"^num_ctx\s+(\d{1,12})\b", str(said.get("parameters") or ""), re.M)
    about = said.get("model_info")
    most = [value for key, value in about.items() if key.endswith(".context_length")] if isinstance(about, dict) else []
    server.context = int(set_[1]) if set_ else next((one for one in most if isinstance(one, int)), server.context)
