"""Answer side questions of clients (models, token counts) if the server speaks another API.

If the model server cannot be reached, the client gets an error in the form of its API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

from mitmproxy import ctx, http
from mitmproxy.net.http import status_codes
from msgspec.structs import replace as replace_fields

from vtc.apis import Api, RequestError, find_api, side_questions
from vtc.apis.side_questions import SideQuestion
from vtc.events import Failure, ListedModel
from vtc.exchange.model_list import collect_real_names, find_model, read_models, strip_prefix
from vtc.exchange.target import translate_headers
from vtc.json_text import encode_json
from vtc.profiles.matching import Facts
from vtc.profiles.memory import Memory
from vtc.profiles.planner import Planner
from vtc.proxy import flows, trust
from vtc.proxy.asking.asker import MAX_ANSWER_BYTES
from vtc.proxy.asking.findings import format_wrong_scheme
from vtc.proxy.asking.question import ServerQuestion
from vtc.proxy.serving import bodies
from vtc.reporting import hints

CLIENT_API = "vtc_client"
"""Metadata key of the client's API, set if the side question was sent to another path."""


def explain_unreachable(flow: http.HTTPFlow, why: str) -> str:
    """Explain a failed connection and its remedy; `why` is mitmproxy's message."""
    at = f"the model server at {flow.request.host}:{flow.request.port}"
    if "destination unknown" in why.casefold():
        return "no model server was named: start VTC with its URL, `vtc run http://127.0.0.1:8000`"
    if "certificate" in why.casefold():
        return f"the certificate of {at} is not trusted ({why}): {trust.CERTIFICATE_ADVICE}"
    if "does not speak TLS" in why:
        plain = f"{flow.request.host}:{flow.request.port}"
        return format_wrong_scheme(f"https://{plain}", f"http://{plain}")
    return f"{at} cannot be reached ({why}): is it running?"


def find_error_api(flow: http.HTTPFlow) -> Api | None:
    """Find the API in which the client expects errors; None if the request belongs to no API."""
    request = flow.request
    if client := flow.metadata.get(CLIENT_API):
        return find_api(client)
    side_question = side_questions.find_side_question(request.method, request.path, flows.read_facts(flow).headers)
    return flows.find_client_api(flow) or (find_api(side_question.client) if side_question else None)


def make_error_answer(api: Api, message: str) -> http.Response:
    """Make a response with an error of the API."""
    body = encode_json(api.build_error(Failure(f"VTC: {message}"), 502))
    return http.Response.make(502, body, {"content-type": "application/json"})


class ModelQuestion(NamedTuple):
    """A question about models that was sent to the server."""

    side_question: SideQuestion
    model: str
    """The requested model; empty for all."""
    aliases: Mapping[str, str]
    """Aliases and the models that they denote."""
    asked: str
    """Method and path of the request to the server."""


type AnswerRenderer = Callable[[int, bytes], tuple[int, bytes]]
"""Renders the status and the body for the client from those of the server."""


class SideQuestions:
    """Handles side questions of clients whose API the server does not speak."""

    def __init__(self) -> None:
        self._pending: WeakKeyDictionary[http.HTTPFlow, AnswerRenderer] = WeakKeyDictionary()
        """The questions that were sent to the server, with the renderers of their answers."""
        self._learners: WeakKeyDictionary[http.HTTPFlow, Callable[[bytes], None]] = WeakKeyDictionary()
        """The questions about models, with functions that learn from the server's answers."""

    def answer_or_forward(self, flow: http.HTTPFlow, planner: Planner, memory: Memory | None) -> bool:
        """Answer a side question or forward it in the server's API; learn from an answer about models.

        Return False if the request is no side question, or the server can answer it unchanged.
        """
        request, facts = flow.request, flows.read_facts(flow)
        side_question = side_questions.find_side_question(request.method, request.path, facts.headers)
        if side_question and memory and side_question.kind in ("models", "model"):
            asked = side_question.model or side_questions.find_model(request.raw_content or b"")
            self._learners[flow] = partial(_learn_real_names, memory, facts, asked)
        if side_question is None or ctx.options.vtc_mode != "rewrite" or planner.has_api(facts, side_question.client):
            return False
        try:
            body = bodies.decode_body(request, ctx.options.vtc_max_body_bytes) or b""
            answer = side_questions.answer_locally(side_question, body, request.path)
        except (RequestError, ValueError):
            return False
        if answer is None:
            self._ask_about_models(
                flow, side_question, planner, facts, side_question.model or side_questions.find_model(body)
            )
        elif side_question.kind == "count" and planner.can_tokenize(facts):
            counted = side_questions.render_tokenize_request(
                side_question, body, lambda model: planner.find_server_model(replace(facts, model=model)), request.path
            )
            question = ServerQuestion(side_questions.TOKENIZE_PATH, counted)
            _send_question(flow, side_question, _list_apis(planner, facts)[0], question)
            self._pending[flow] = partial(_render_count, side_question, answer)
        else:
            flow.response = http.Response.make(200, answer, {"content-type": "application/json"})
        flows.annotate(flow, f"vtc: {side_question.kind}, as {side_question.client} has it", "")
        return True

    def _ask_about_models(
        self, flow: http.HTTPFlow, side_question: SideQuestion, planner: Planner, facts: Facts, name: str
    ) -> None:
        """Request the server's list of models, or the details of one model if the server has a path for them."""
        is_single = side_question.kind == "model"
        names = [name] if is_single else planner.list_aliases(facts)
        aliases = {alias: planner.find_server_model(replace(facts, model=alias)) or alias for alias in names}
        apis = _list_apis(planner, facts)
        showing = next((api.place for api in apis if is_single and api.place.shows), None)
        question = ServerQuestion(apis[0].place.lists)
        if showing:
            question = ServerQuestion(showing.shows, encode_json({"model": strip_prefix(aliases[name])}))
        _send_question(flow, side_question, apis[0], question)
        asked = f"{question.method} {flow.request.path.partition('?')[0]}"
        about = ModelQuestion(side_question, name if is_single else "", aliases, asked)
        self._pending[flow] = partial(_render_models, about, int(flow.request.timestamp_start))

    def response(self, flow: http.HTTPFlow) -> None:
        """Learn from the server's answer, and translate its models or token count to the client's API."""
        learn, render, response = self._learners.pop(flow, None), self._pending.pop(flow, None), flow.response
        if learn and response and response.status_code == 200:
            with suppress(ValueError):
                learn(bodies.decode_body(response, MAX_ANSWER_BYTES) or b"")
        if render is None or response is None:
            return
        status, body = render(response.status_code, response.get_content(strict=False) or b"")
        if response.status_code != status:
            response.status_code, response.reason = status, status_codes.RESPONSES.get(status, "")
        bodies.replace_reply_body(response, body, "application/json")


def _learn_real_names(memory: Memory, facts: Facts, asked: str, body: bytes) -> None:
    """Store the names of the models behind aliases, from a list of models or the description of one."""
    described = find_model(body, asked) if asked else None
    for name, names in collect_real_names([described] if described else read_models(body) or ()).items():
        memory.store_real_names(replace(facts, model=name).model_key, names)


def _list_apis(planner: Planner, facts: Facts) -> list[Api]:
    return [api for name in planner.list_apis(facts) if (api := find_api(name))]


def _send_question(flow: http.HTTPFlow, side_question: SideQuestion, server: Api, question: ServerQuestion) -> None:
    """Send a question in the place of a side question, with the client's key in the header that the server expects."""
    request = flow.request
    request.method, request.content = question.method, question.body or b""
    _, key = side_question.api.place.split_own_query(request.path.partition("?")[2])
    translate_headers(request.headers, key, server.place)
    flows.change_path(flow, side_question.path_at(request.path, question.path))
    flow.metadata[CLIENT_API] = side_question.client
    request.headers["accept-encoding"] = "identity"


def _render_count(side_question: SideQuestion, estimate: bytes, status: int, body: bytes) -> tuple[int, bytes]:
    """Render the server's token count; the estimate if it returned none."""
    return 200, (status == 200 and side_questions.convert_token_count(side_question, body)) or estimate


def _render_models(question: ModelQuestion, time: int, status: int, body: bytes) -> tuple[int, bytes]:
    """Render models for the client, or an error of its API if the server has no answer."""
    side_question = question.side_question
    listed = read_models(body) if status == 200 else None

    def get_model(name: str) -> ListedModel | None:
        model = find_model(body, question.aliases.get(name, name)) if status == 200 else None
        return replace_fields(model, name=name, created=model.created or time) if model else None

    if question.model:
        if model := get_model(question.model):
            return 200, side_question.render_answer(model)
        is_unknown = listed is not None or status == 404
    else:
        names = [*question.aliases, *(model.name for model in listed or ())]
        if listed is not None or names:
            models = [get_model(name) or ListedModel(name=name, created=time) for name in dict.fromkeys(names)]
            return 200, side_question.render_answer(models)
        is_unknown = False
    detail = hints.extract_message(body) if status != 200 else "the answer is not a list of models"
    why = f"the model server answers {status} to {question.asked}{f': {detail}' if detail else ''}"
    if is_unknown:
        why = f"the model server has no model {question.model} ({question.asked} lists them)"
    return _render_error(side_question, why, 404 if is_unknown else status if status >= 400 else 502)


def _render_error(side_question: SideQuestion, why: str, status: int) -> tuple[int, bytes]:
    return status, encode_json(side_question.api.build_error(Failure(f"VTC: {why}"), status))
