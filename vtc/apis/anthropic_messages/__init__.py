"""Anthropic Messages (`POST …/v1/messages`), as Claude Code and the Anthropic SDKs speak it."""

from vtc.apis.anthropic_messages.answer import answer, folded, unfolded
from vtc.apis.anthropic_messages.reply import StreamCodec
from vtc.apis.anthropic_messages.request import Request
from vtc.apis.base import Api

API = Api(
    "anthropic-messages",
    "/v1/messages",
    Request,
    lambda form, drop: StreamCodec(thinks=bool(form), drop=drop),
    unfolded,
    folded,
    answer,
    call_ids="toolu_",
)
