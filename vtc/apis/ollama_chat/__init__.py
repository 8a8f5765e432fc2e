"""Ollama's own chat API (`POST …/api/chat`)."""

from vtc.apis.contract import TEXT_COMPLETIONS_UNREAD, Api
from vtc.apis.ollama_chat.reply import Decoder, Encoder, fold_lines, unfold_reply
from vtc.apis.ollama_chat.request import NAME, QUESTIONS, SHOW_PATH, Request, build_error, build_request, constrain
from vtc.apis.place import Place

__all__ = ["API", "NAME", "Decoder", "Encoder", "Request"]

API = Api(
    NAME,
    Place("/api/chat", lists="/api/tags", shows=SHOW_PATH),
    Request,
    lambda _, drop: Decoder(drop),
    lambda form, drop: Encoder(bool(form), drop),
    unfold_reply,
    fold_lines,
    build_request,
    build_error,
    constrain,
    in_pieces=False,
    questions=QUESTIONS,
    unread={"/api/generate": TEXT_COMPLETIONS_UNREAD},
)
