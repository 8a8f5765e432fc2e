"""Gemini's generateContent (`POST …/models/MODEL:generateContent`, `:streamGenerateContent?alt=sse`)."""

from __future__ import annotations

import re

from vtc.apis.base import Api
from vtc.apis.gemini.decoder import Decoder
from vtc.apis.gemini.encoder import Encoder
from vtc.apis.gemini.request import Request
from vtc.apis.gemini.whole import answer, folded, unfolded
from vtc.apis.gemini.words import NAME

_PATH = re.compile(r"/models/[^/]+:(?:stream)?generatecontent\Z")


class Gemini(Api):
    """The API whose model, and whether a stream is asked for, stand in the path."""

    def is_at(self, path: str) -> bool:
        return _PATH.search(path) is not None


API = Gemini(
    NAME,
    ":generateContent",
    Request,
    lambda _, drop: Decoder(drop),
    lambda _, drop: Encoder(drop),
    unfolded,
    folded,
    answer,
)
