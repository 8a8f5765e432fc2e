"""OpenAI chat completions (`POST …/chat/completions`), the API that most model servers share."""

from vtc.apis.contract import TEXT_COMPLETIONS_UNREAD, Api, UnreadPath
from vtc.apis.openai_chat import request
from vtc.apis.openai_chat.decoder import Decoder
from vtc.apis.openai_chat.encoder import Encoder
from vtc.apis.openai_chat.reply import fold_chunks, unfold_reply
from vtc.apis.openai_chat.request import QUESTIONS, Request
from vtc.apis.openai_chat.words import NAME, ChatForm
from vtc.apis.place import Place

__all__ = ["API", "NAME", "ChatForm", "Decoder", "Encoder", "Request"]

API = Api(
    NAME,
    Place("/chat/completions", version="/v1", own_headers="openai-", flags="openai-beta"),
    Request,
    lambda form, drop: Decoder(
        drop,
        reasoning_fields=form.reasoning_fields if form else (),
        wants_one_choice=form.wants_one_choice if form else False,
    ),
    lambda form, drop: Encoder(form or ChatForm(), drop),
    unfold_reply,
    fold_chunks,
    request.build_request,
    request.build_error,
    request.constrain,
    questions=QUESTIONS,
    unread={
        "/chat/completions": UnreadPath("a completion that the server stored is not read", may_call=True),
        "/completions": TEXT_COMPLETIONS_UNREAD,
    },
)
