"""Gemini's generateContent (`POST …/models/MODEL:generateContent`, `…:streamGenerateContent?alt=sse`).

The format is that of ai.google.dev/api/generate-content, and of Google's SDKs and its Gemini CLI.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from vtc.apis.base import Api
from vtc.apis.gemini import asking
from vtc.apis.gemini.answer import answer, folded, unfolded
from vtc.apis.gemini.decoder import Decoder
from vtc.apis.gemini.encoder import Encoder
from vtc.apis.gemini.request import Request
from vtc.apis.gemini.words import NAME

_OWN = re.compile(r"/models/[^?]+:(?:stream)?generatecontent\Z", re.IGNORECASE)
_VERSION = re.compile(r"/v\d\w*\Z")


class Gemini(Api):
    """The API whose model, and whether a stream is asked for, stand in the path."""

    def is_at(self, path: str) -> bool:
        return _OWN.search(path) is not None

    def before(self, path: str) -> str:
        return _OWN.sub("", unquote(path))

    def base(self, path: str) -> str:
        return _VERSION.sub("", self.before(path))

    def route(self, model: str, *, stream: bool, at: str = "") -> str:
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"{at or self.version}/models/{quote(model.removeprefix('models/'), safe='/:@')}:{method}"


API = Gemini(
    NAME,
    ":generateContent",
    "/v1beta",
    Request,
    lambda _, drop: Decoder(drop),
    lambda _, drop: Encoder(drop),
    unfolded,
    folded,
    answer,
    asking.ask,
    asking.error,
    asking.LIMITS,
    in_pieces=False,
    key="x-goog-api-key",
    private=("x-goog-", "key=", "alt=", "$"),
)
