"""Learn facts about a server and one of its models, from requests that need no reply of the model."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from vtc.cli.probing.bounded_asker import NotAskedError
from vtc.exchange.model_list import list_model_names
from vtc.json_text import encode_json
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, choose_best, value_at
from vtc.profiles.schema import ServerProfile
from vtc.proxy.asking.asker import Asker, ServerAnswer
from vtc.proxy.asking.findings import MODELS_PATH, detect_apis, find_by_owner, list_entries
from vtc.proxy.asking.question import ServerQuestion
from vtc.proxy.trust import CERTIFICATE_ADVICE
from vtc.reporting.hints import WEB_PAGE_HINT, is_web_page


class SelfDescription(NamedTuple):
    """The path at which servers of one kind describe themselves, and dotted paths into the JSON of the answer."""

    server: str
    """The name of the server's profile."""
    path: str
    required_key: str
    """The key whose presence identifies the kind of server."""
    version: str
    context: str = ""
    template: str = ""


SELF_DESCRIPTIONS = (
    SelfDescription(
        "llama.cpp",
        "/props",
        "default_generation_settings",
        "build_info",
        "default_generation_settings.n_ctx",
        "chat_template",
    ),
    SelfDescription("ollama", "/api/version", "version", "version"),
    SelfDescription("sglang", "/get_server_info", "model_path", "version", "context_length"),
    SelfDescription("vllm", "/version", "version", "version"),
)
"""Self-descriptions in the order in which they are requested."""
UNRECOGNISED_CANDIDATES = ("llama.cpp", "ollama")
"""Servers whose self-description is requested if the server is not recognised; many servers have the path of vLLM."""
CONTEXT_PATHS = (
    "max_model_len",
    "context_length",
    "max_context_length",
    "meta.n_ctx",
    "context_window",
    "meta.n_ctx_train",
)
"""Dotted paths of the context length, in tokens, in an entry of a list of models."""
OLLAMA_MODEL_INFO = ("ollama", "/api/show")
"""Ollama's profile, and the path at which it describes a model."""
NO_CHAT_MODELS = re.compile(r"embed|rerank|whisper|tts", re.I)
"""Names of listed models that cannot chat."""


@dataclass(slots=True, kw_only=True)
class ServerFacts:
    """Facts about a server and the probed model."""

    url: str
    profile: ServerProfile | None = None
    recognised_by: str = ""
    """The evidence for the profile, for people."""
    version: str = ""
    model: str = ""
    models: tuple[str, ...] = ()
    context: int = 0
    """The context length in tokens; 0 if unknown."""
    template: str = ""
    """The chat template, in Jinja's syntax; empty if unknown."""
    capabilities: tuple[str, ...] | None = None
    """The model's capabilities as the server lists them (Ollama); None if it does not."""
    apis: tuple[str, ...] = ()
    problem: str = ""
    """The reason why the probe cannot continue; empty if it can."""

    @property
    def facts(self) -> Facts:
        """The facts with which profiles are matched."""
        url = urlsplit(self.url)
        return Facts(model=self.model, host=url.hostname or "", port=url.port or 0)

    @property
    def host_and_port(self) -> str:
        """The host and the port, in the form that profiles match."""
        facts = self.facts
        return f"{facts.host}:{facts.port}" if facts.port else facts.host


def learn_server_facts(
    asker: Asker, profiles: Profiles, *, model: str, chosen_apis: tuple[str, ...], server_name: str
) -> ServerFacts:
    """Ask a server about itself and the model.

    `model`, `chosen_apis` and `server_name` (of its profile) are the user's choices; empty if there is none.
    """
    # Step 1: list the models, and recognise the kind of server.
    server = ServerFacts(url=asker.url, model=model)
    listed = asker.ask(ServerQuestion(MODELS_PATH))
    if problem := _find_problem(listed, has_key=asker.has_key):
        server.problem = problem
        return server
    _choose_model(server, listed)
    _recognise_server(server, listed, profiles, server_name)
    # Step 2: request the self-description of this kind of server, or of each kind that it can be.
    known = server.profile.name if server.profile else ""
    for about in SELF_DESCRIPTIONS:
        if about.server == known or (not known and about.server in UNRECOGNISED_CANDIDATES):
            _apply_self_description(server, about, asker.ask(ServerQuestion(about.path)).json, profiles)
            known = server.profile.name if server.profile else ""
    # Step 3: request the description of the model (Ollama), and detect the APIs.
    path = OLLAMA_MODEL_INFO[1] if known == OLLAMA_MODEL_INFO[0] else ""
    if path and server.model:
        _apply_model_info(server, asker.ask(ServerQuestion(path, encode_json({"model": server.model}))).json)
    if not server.model:
        server.problem = f"GET {MODELS_PATH} lists no model: name one with --model"
        if is_web_page(listed.body):
            server.problem = f"the server answers GET {MODELS_PATH} with {WEB_PAGE_HINT}"
        return server
    server.apis = chosen_apis or detect_apis(asker)
    return server


def _find_problem(listed: ServerAnswer, *, has_key: bool) -> str:
    """Explain why the list of models cannot be read; empty if the probe can continue."""
    if isinstance(listed.error, NotAskedError):
        return listed.why
    if isinstance(listed.error, ssl.SSLCertVerificationError):
        why = listed.error.verify_message
        return f"its certificate is not trusted ({why}): {CERTIFICATE_ADVICE}"
    if listed.error:
        return f"the server cannot be reached ({listed.why}): is it running, and is the URL right?"
    if listed.status in (401, 403):
        if has_key:
            return f"the server does not accept the key (status {listed.status})"
        return f"the server requires a key (status {listed.status}): name its environment variable with --key-env"
    return ""


def _choose_model(server: ServerFacts, listed: ServerAnswer) -> None:
    """Choose the first chat model of the list, unless the user chose one, and record its context length."""
    models = list_entries(listed.json)
    server.models = tuple(list_model_names(listed.body)) if listed.ok else ()
    if not server.model:
        server.model = next((name for name in server.models if not NO_CHAT_MODELS.search(name)), "")
    own = next((model for model in models if model.get("id") == server.model), {})
    numbers = [value_at(own, path) for path in CONTEXT_PATHS]
    server.context = next((number for number in numbers if isinstance(number, int)), 0)


def _recognise_server(server: ServerFacts, listed: ServerAnswer, profiles: Profiles, server_name: str) -> None:
    """Find the profile of the server by the user's choice, the owner of its models, a header, or the host."""
    by_host = choose_best(profiles.servers, server.facts, profiles.sources).profile
    by_header = next((name for name in profiles.servers if name == listed.headers.get("server")), None)
    if server_name:
        server.profile, server.recognised_by = profiles.servers[server_name], "named by --server"
    elif by_owner := find_by_owner(listed.json, profiles):
        server.profile, server.recognised_by = (
            by_owner,
            f"its list of models names {' or '.join(by_owner.owned_by)} as owner",
        )
    elif by_header:
        server.profile, server.recognised_by = profiles.servers[by_header], f"it sends the header `server: {by_header}`"
    elif by_host:
        server.profile, server.recognised_by = by_host, f"{server.host_and_port} matches its profile"


def _apply_self_description(server: ServerFacts, about: SelfDescription, answer: Any, profiles: Profiles) -> None:
    """Record version, template and context length from a self-description, if it is of this kind of server."""
    if not isinstance(answer, Mapping) or about.required_key not in answer:
        return
    if server.profile is None and about.server in profiles.servers:
        server.profile, server.recognised_by = profiles.servers[about.server], f"it answers GET {about.path}"
    version, template = value_at(answer, about.version), value_at(answer, about.template)
    context = value_at(answer, about.context)
    server.version = version if isinstance(version, str) else server.version
    server.template = template if isinstance(template, str) else server.template
    server.context = context if isinstance(context, int) and context else server.context


def _apply_model_info(server: ServerFacts, answer: Any) -> None:
    """Record capabilities and context length from Ollama's description of a model; its template is not Jinja."""
    if not isinstance(answer, Mapping):
        return
    capabilities = answer.get("capabilities")
    server.capabilities = tuple(map(str, capabilities)) if isinstance(capabilities, list) else None
    configured = re.search(r"^num_ctx\s+(\d{1,12})\b", str(answer.get("parameters") or ""), re.M)
    info = answer.get("model_info")
    entries = info.items() if isinstance(info, dict) else ()
    limits = [value for key, value in entries if key.endswith(".context_length") and isinstance(value, int)]
    if configured:
        server.context = int(configured[1])
    elif limits:
        server.context = limits[0]
