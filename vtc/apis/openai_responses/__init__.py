"""OpenAI Responses (`POST …/responses`), the API of Codex."""

from vtc.apis.base import Api
from vtc.apis.openai_responses import asking
from vtc.apis.openai_responses.answer import answer, folded, unfolded
from vtc.apis.openai_responses.decoder import Decoder
from vtc.apis.openai_responses.encoder import Encoder
from vtc.apis.openai_responses.items import NAME, Form
from vtc.apis.openai_responses.questions import QUESTIONS
from vtc.apis.openai_responses.request import Request

API = Api(
    NAME,
    "/responses",
    "/v1",
    Request,
    lambda form, drop: Decoder(form or Form(), drop),
    lambda form, drop: Encoder(form or Form(), drop),
    unfolded,
    folded,
    answer,
    asking.ask,
    asking.error,
    asking.LIMITS,
    questions=QUESTIONS,
)
