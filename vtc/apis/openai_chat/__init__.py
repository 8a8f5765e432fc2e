"""OpenAI chat completions (`POST …/chat/completions`), the form that model servers share."""

from vtc.apis.base import Api
from vtc.apis.openai_chat import asking
from vtc.apis.openai_chat.answer import answer, folded, unfolded
from vtc.apis.openai_chat.decoder import Decoder
from vtc.apis.openai_chat.encoder import Encoder
from vtc.apis.openai_chat.questions import QUESTIONS
from vtc.apis.openai_chat.request import Request
from vtc.apis.openai_chat.words import NAME, Form

API = Api(
    NAME,
    "/chat/completions",
    "/v1",
    Request,
    lambda form, drop: Decoder(drop, thoughts=form.thoughts if form else ()),
    lambda form, drop: Encoder(form or Form(), drop),
    unfolded,
    folded,
    answer,
    asking.ask,
    asking.error,
    asking.LIMITS,
    asking.constrain,
    questions=QUESTIONS,
)
