"""Gemini's API (`POST …/models/MODEL:generateContent`), as Gemini CLI and Google's SDKs speak it."""

from vtc.apis.base import Api, Unread
from vtc.apis.gemini_generate import asking
from vtc.apis.gemini_generate.answer import answer, folded, unfolded
from vtc.apis.gemini_generate.questions import QUESTIONS
from vtc.apis.gemini_generate.reply import Decoder, Encoder
from vtc.apis.gemini_generate.request import PLACE, Request
from vtc.apis.gemini_generate.words import NAME

API = Api(
    NAME,
    PLACE,
    Request,
    lambda _, drop: Decoder(drop),
    lambda form, drop: Encoder(bool(form), drop),
    unfolded,
    folded,
    answer,
    asking.ask,
    asking.error,
    asking.LIMITS,
    in_pieces=False,
    questions=QUESTIONS,
    unread={
        ":streamgeneratecontent": Unread("a stream that is a list of JSON is not read: ask for it by alt=sse", True),
        ":batchgeneratecontent": Unread("the requests and replies of a batch are not read", True),
    },
)
