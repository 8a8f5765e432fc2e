"""Gemini's API (`POST …/models/MODEL:generateContent`), as Gemini CLI and Google's SDKs speak it."""

from vtc.apis.contract import Api, UnreadPath
from vtc.apis.gemini_generate import request
from vtc.apis.gemini_generate.parts import NAME
from vtc.apis.gemini_generate.reply import Decoder, Encoder, fold_events, unfold_reply
from vtc.apis.gemini_generate.request import PLACE, QUESTIONS, Request

_LOGIN = UnreadPath("what Gemini CLI asks after a login at Google has another form: give it a key", may_call=True)
_LIST = UnreadPath("a stream that is a list of JSON is not read: ask for it by alt=sse", may_call=True)
_OTHER = UnreadPath("what is asked at this address is none of `models`, `tunedModels` and `endpoints`", may_call=True)
_INTERACTIONS = UnreadPath("the Interactions API is not read: use generateContent", may_call=True)

__all__ = ["API", "NAME", "Decoder", "Encoder", "Request"]

API = Api(
    NAME,
    PLACE,
    Request,
    lambda _, drop: Decoder(drop),
    lambda form, drop: Encoder(bool(form), drop),
    unfold_reply,
    fold_events,
    request.ask,
    request.error,
    in_pieces=False,
    seals="amid",
    questions=QUESTIONS,
    unread={
        **dict.fromkeys(("/v1internal:generatecontent", "/v1internal:streamgeneratecontent"), _LOGIN),
        **{f"/{kind}/{{model}}:streamgeneratecontent": _LIST for kind in ("models", *PLACE.kinds)},
        **dict.fromkeys(("/{model}:generatecontent", "/{model}:streamgeneratecontent"), _OTHER),
        **dict.fromkeys(("/v1beta/interactions", "/v1alpha/interactions"), _INTERACTIONS),
        ":batchgeneratecontent": UnreadPath("the requests and replies of a batch are not read", True),
    },
)
