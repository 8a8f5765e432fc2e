"""OpenAI Responses (`POST …/responses`), the API of Codex."""

from vtc.apis.base import Api
from vtc.apis.openai_responses.answer import answer, folded, unfolded
from vtc.apis.openai_responses.items import Form
from vtc.apis.openai_responses.reply import EventCodec
from vtc.apis.openai_responses.request import Request

API = Api(
    "openai-responses",
    "/responses",
    Request,
    lambda form, drop: EventCodec(form=form or Form(), drop=drop),
    unfolded,
    folded,
    answer,
)
