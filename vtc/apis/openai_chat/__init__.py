"""OpenAI chat completions (`POST …/chat/completions`), the API that most model servers share."""

from vtc.apis.contract import TEXT_COMPLETIONS_UNREAD, Api, UnreadPath
from vtc.apis.openai_chat.decoder import Decoder
from vtc.apis.openai_chat.encoder import Encoder
from vtc.apis.openai_chat.questions import QUESTIONS
from vtc.apis.openai_chat.reply import build_error, fold_chunks, unfold_reply
from vtc.apis.openai_chat.request import Request
from vtc.apis.openai_chat.request_writer import ChatRequestWriter
from vtc.apis.openai_chat.words import NAME, ChatForm
from vtc.apis.place import Place

__all__ = ["API", "NAME", "ChatForm", "ChatRequestWriter", "Decoder", "Encoder", "Request"]

API = Api(
    NAME,
    Place("/chat/completions", version="/v1", own_headers="openai-", flags="openai-beta"),
    Request,
    ChatRequestWriter(),
    lambda form, drop: Decoder(
        drop,
        reasoning_fields=form.reasoning_fields if form else (),
        wants_one_choice=form.wants_one_choice if form else False,
    ),
    lambda form, drop: Encoder(form or ChatForm(), drop),
    unfold_reply,
    fold_chunks,
    build_error,
    questions=QUESTIONS,
    unread={
        "/chat/completions": UnreadPath("a completion that the server stored is not read", may_call=True),
        "/completions": TEXT_COMPLETIONS_UNREAD,
    },
)
