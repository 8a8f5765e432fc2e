"""OpenAI Responses (`POST …/responses`), the API of Codex."""

from vtc.apis.contract import TOKEN_COUNT_UNREAD, Api, UnreadPath
from vtc.apis.openai_chat.reply import build_error
from vtc.apis.openai_responses.decoder import Decoder
from vtc.apis.openai_responses.encoder import Encoder
from vtc.apis.openai_responses.items import NAME, ResponseForm
from vtc.apis.openai_responses.questions import QUESTIONS
from vtc.apis.openai_responses.reply import fold_events, unfold_reply
from vtc.apis.openai_responses.request import Request
from vtc.apis.openai_responses.request_writer import ResponsesRequestWriter
from vtc.apis.place import Place

__all__ = ["API", "NAME", "Decoder", "Encoder", "Request", "ResponseForm"]

API = Api(
    NAME,
    Place("/responses", version="/v1", own_headers="openai-", flags="openai-beta"),
    Request,
    ResponsesRequestWriter(),
    lambda form, drop: Decoder(form or ResponseForm(), drop),
    lambda form, drop: Encoder(form or ResponseForm(), drop),
    unfold_reply,
    fold_events,
    build_error,
    seals="part",
    questions=QUESTIONS,
    unread={
        "/responses/input_tokens": TOKEN_COUNT_UNREAD,
        "/responses/compact": UnreadPath("compaction of a conversation by the server is not read", may_call=True),
        "/v1/responses": UnreadPath("a response that the server stored is not read", may_call=True),
    },
)
