"""What clients ask besides replies, where the server speaks another API: answered here, or put to the server's way."""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

from mitmproxy import ctx, http

from vtc.apis import BadRequest, beside
from vtc.apis.beside import Aside
from vtc.profiles.planner import Planner
from vtc.proxy import bodies, flows


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
            found = flow.response.status_code == 200 and beside.counted(aside, body)
            flow.response.status_code, flow.response.reason = 200, "OK"
            bodies.replace(flow.response, found or estimate, "application/json")
            return
        listing = self._lists.pop(flow, None)
        if listing is None or flow.response is None or flow.response.status_code != 200:
            return
        aside, more = listing
        names = beside.names_of(flow.response.get_content(strict=False) or b"")
        bodies.replace(flow.response, beside.listed(aside.client, [*more, *names]), "application/json")
