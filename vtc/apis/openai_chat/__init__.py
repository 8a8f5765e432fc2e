"""OpenAI chat completions (`POST …/chat/completions`), the form that model servers share."""

from vtc.apis.base import Api
from vtc.apis.openai_chat.answer import answer, folded, unfolded
from vtc.apis.openai_chat.reply import ChunkCodec
from vtc.apis.openai_chat.request import Request

API = Api(
    "openai-chat",
    "/chat/completions",
    Request,
    lambda form, drop: ChunkCodec(bool(form), drop),
    unfolded,
    folded,
    answer,
)
