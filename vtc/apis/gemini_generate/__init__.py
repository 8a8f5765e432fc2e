"""Gemini's API (`POST …/models/MODEL:generateContent`), the API of Gemini CLI and Google's SDKs."""

from vtc.apis.contract import Api, UnreadPath
from vtc.apis.gemini_generate.parts import NAME
from vtc.apis.gemini_generate.questions import QUESTIONS
from vtc.apis.gemini_generate.reply import Decoder, Encoder, build_error, fold_events, unfold_reply
from vtc.apis.gemini_generate.request import PLACE, Request
from vtc.apis.gemini_generate.request_writer import GeminiRequestWriter

_LOGIN = UnreadPath("Gemini CLI uses another API after a login at Google: give it an API key", may_call=True)
_LIST = UnreadPath("a stream in the form of a JSON list is not read: add alt=sse to the query", may_call=True)
_OTHER = UnreadPath("only `models`, `tunedModels` and `endpoints` are read, not this path", may_call=True)
_INTERACTIONS = UnreadPath("the Interactions API is not read: use generateContent", may_call=True)

__all__ = ["API", "NAME", "Decoder", "Encoder", "Request"]

API = Api(
    NAME,
    PLACE,
    Request,
    GeminiRequestWriter(),
    lambda _, drop: Decoder(drop),
    lambda form, drop: Encoder(bool(form), drop),
    unfold_reply,
    fold_events,
    build_error,
    in_pieces=False,
    seals="part",
    cites=False,
    questions=QUESTIONS,
    unread={
        **dict.fromkeys(("/v1internal:generatecontent", "/v1internal:streamgeneratecontent"), _LOGIN),
        **{f"/{kind}/{{model}}:streamgeneratecontent": _LIST for kind in ("models", *PLACE.kinds)},
        **dict.fromkeys(("/{model}:generatecontent", "/{model}:streamgeneratecontent"), _OTHER),
        **dict.fromkeys(("/v1beta/interactions", "/v1alpha/interactions"), _INTERACTIONS),
        ":batchgeneratecontent": UnreadPath("the requests and replies of a batch are not read", True),
    },
)
