"""Anthropic Messages (`POST …/v1/messages`), the API of Claude Code and the Anthropic SDKs."""

from vtc.apis.anthropic_messages.decoder import Decoder
from vtc.apis.anthropic_messages.encoder import Encoder
from vtc.apis.anthropic_messages.questions import QUESTIONS
from vtc.apis.anthropic_messages.reply import NAME, build_error, fold_events, unfold_reply
from vtc.apis.anthropic_messages.request import Request
from vtc.apis.anthropic_messages.request_writer import MessagesRequestWriter
from vtc.apis.contract import TOKEN_COUNT_UNREAD, Api, UnreadPath
from vtc.apis.place import Place

_VERTEX = UnreadPath("Claude on Vertex (`rawPredict`) is not read: use /v1/messages", may_call=True)
_BEDROCK = UnreadPath("the API of Amazon Bedrock is not read: use the model at /v1/messages", may_call=True)

__all__ = ["API", "NAME", "Decoder", "Encoder", "Request"]

API = Api(
    NAME,
    Place(
        "/v1/messages",
        key="x-api-key",
        headers={"anthropic-version": "2023-06-01"},
        own_headers="anthropic-",
        flags="anthropic-beta",  # docs.anthropic.com, "Beta headers"
        own_query=("beta",),
        lists="/v1/models?limit=1000",
    ),
    Request,
    MessagesRequestWriter(),
    lambda _, drop: Decoder(drop),
    lambda form, drop: Encoder(bool(form), drop),
    unfold_reply,
    fold_events,
    build_error,
    call_ids="toolu_",
    seals="signed",
    questions=QUESTIONS,
    unread={
        "/v1/messages/count_tokens": TOKEN_COUNT_UNREAD,
        "/v1/messages/batches": UnreadPath("the requests and replies of a batch are not read", may_call=True),
        **dict.fromkeys(("/{model}:rawpredict", "/{model}:streamrawpredict"), _VERTEX),
        **{
            f"/model/{{model}}/{action}": _BEDROCK
            for action in ("invoke", "invoke-with-response-stream", "converse", "converse-stream")
        },
    },
)
