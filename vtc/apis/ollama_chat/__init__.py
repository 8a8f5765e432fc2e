"""Ollama's own chat API (`POST …/api/chat`)."""

from vtc.apis.contract import TEXT_COMPLETIONS_UNREAD, Api
from vtc.apis.ollama_chat.questions import QUESTIONS, SHOW_PATH
from vtc.apis.ollama_chat.reply import NAME, Decoder, Encoder, build_error, fold_lines, unfold_reply
from vtc.apis.ollama_chat.request import Request
from vtc.apis.ollama_chat.request_writer import OllamaRequestWriter
from vtc.apis.place import Place

__all__ = ["API", "NAME", "Decoder", "Encoder", "Request"]

API = Api(
    NAME,
    Place("/api/chat", lists="/api/tags", shows=SHOW_PATH),
    Request,
    OllamaRequestWriter(),
    lambda _, drop: Decoder(drop),
    lambda form, drop: Encoder(bool(form), drop),
    unfold_reply,
    fold_lines,
    build_error,
    in_pieces=False,
    cites=False,
    questions=QUESTIONS,
    unread={"/api/generate": TEXT_COMPLETIONS_UNREAD},
)
