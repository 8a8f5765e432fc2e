"""Answer what clients ask besides replies (models, counts of tokens), where the server speaks another API."""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

from mitmproxy import ctx, http

from vtc.apis import Api, BadRequest, beside, named
from vtc.apis.beside import Aside
from vtc.events import Failure
from vtc.json_text import encode
from vtc.profiles.planner import Planner
from vtc.proxy import bodies, flows

# A model server that cannot be reached: what is told, and the answer that the client gets in its API's own form.


UNTRUSTED = (
    "`--set ssl_verify_upstream_trusted_ca=FILE` names the authority that signed it, "
    "`--set ssl_insecure=true` takes any"
)
"""Advice about a certificate; with `vtc run` it stands after `--`."""


def explained(flow: http.HTTPFlow, why: str) -> str:
    """Say what to do where there is no connection; `why` in mitmproxy's words."""
    at = f"the model server at {flow.request.host}:{flow.request.port}"
    if "destination unknown" in why.casefold():
        return "no model server was named: start VTC with its URL, `vtc run http://127.0.0.1:8000`"
    if "certificate" in why.casefold():
        return f"the certificate of {at} is not trusted ({why}): {UNTRUSTED}"
    return f"{at} cannot be reached ({why}): is it running?"


def api(flow: http.HTTPFlow) -> Api | None:
    """Find the API in whose form the client of a flow reads errors; None if it asks for something else."""
    request = flow.request
    aside = beside.asked(request.method, request.path, flows.facts(flow).headers)
    return flows.api(flow) or (named(aside.client) if aside else None)


def answer(api: Api, message: str) -> http.Response:
    """Make the answer: an error of the API."""
    body = encode(api.error(Failure(f"VTC: {message}"), 502))
    return http.Response.make(502, body, {"content-type": "application/json"})


class Beside:
    """Deals with the questions of clients whose API the server does not speak."""

    def __init__(self) -> None:
        self._lists: WeakKeyDictionary[http.HTTPFlow, tuple[Aside, list[str]]] = WeakKeyDictionary()
        """Lists of models that are under way, and the names that stand for others."""
        self._counts: WeakKeyDictionary[http.HTTPFlow, tuple[Aside, bytes]] = WeakKeyDictionary()
        """Counts of tokens that are under way, each with the answer if the server has none."""

    def take(self, flow: http.HTTPFlow, planner: Planner) -> bool:
        """Answer a question, or have the server asked in its own way; False if it is none, or the server's own."""
        request, facts = flow.request, flows.facts(flow)
        aside = beside.asked(request.method, request.path, facts.headers)
        if aside is None or ctx.options.vtc_mode != "rewrite" or planner.serves(facts, aside.client):
            return False
        try:
            body = bodies.decoded(request, ctx.options.vtc_max_body_bytes) or b""
            answer = beside.answer(aside, body, request.path)
        except (BadRequest, ValueError):
            return False
        if answer is None:
            request.path = aside.path_at(request.path, beside.MODELS)
            request.headers["accept-encoding"] = "identity"
            self._lists[flow] = aside, planner.models(facts)
        elif aside.kind == "count" and planner.tokenizes(facts):
            request.content = beside.question(
                aside, body, lambda model: planner.server_model(replace(facts, model=model)), request.path
            )
            request.path = aside.path_at(request.path, beside.TOKENIZE)
            request.headers["accept-encoding"] = "identity"
            self._counts[flow] = aside, answer
        else:
            flow.response = http.Response.make(200, answer, {"content-type": "application/json"})
        flow.comment = f"vtc: {aside.kind}, as {aside.client} has it"
        return True

    def response(self, flow: http.HTTPFlow) -> None:
        """Write a list of models, or a count of tokens, in the form of the client's API."""
        if (counting := self._counts.pop(flow, None)) and flow.response is not None:
            (aside, estimate), body = counting, flow.response.get_content(strict=False) or b""
            count = flow.response.status_code == 200 and beside.counted(aside, body)
            flow.response.status_code, flow.response.reason = 200, "OK"
            bodies.replace(flow.response, count or estimate, "application/json")
            return
        listing = self._lists.pop(flow, None)
        if listing is None or flow.response is None or flow.response.status_code != 200:
            return
        aside, more = listing
        names = beside.names_of(flow.response.get_content(strict=False) or b"")
        bodies.replace(flow.response, beside.listed(aside.client, [*more, *names]), "application/json")
