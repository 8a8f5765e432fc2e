"""Text values between tags end at the same place as in the reader."""

from __future__ import annotations

import pytest

from tests.dialects.constrain.material import call, required_grammar, text_of
from tests.dialects.material import DIALECTS, calls, read
from vtc.dialects.constrain.tree import FreeText, is_free_text
from vtc.dialects.syntax.pattern import Lit, OneOf, Space
from vtc.events import Tool

STOP = FreeText(((Lit("</a"), Space(), Lit(">"), Space(), OneOf(("<b", "<c"))),), ((Lit("</a>"), Space()),))


@pytest.mark.parametrize("value", ["", "x", "</a", "</a> x", "</a><d", "<</a>x", "</a></a>.", "</a>\\t<b"])
def test_value_may_contain_anything_but_its_end(value: str) -> None:
    assert is_free_text(STOP, value)


@pytest.mark.parametrize("value", ["</a><b", "x</a >\n <c>", "</a></a> <b", "</a>\\n<b", "x</a>", "x</a> \n"])
def test_it_may_hold_nothing_that_ends_it(value: str) -> None:
    assert not is_free_text(STOP, value)


CONTENTS = [
    "</parameter>",
    "a </parameter> b",
    "<html>\n</html>",
    "</function>",
    "if a < b:\n    return '</parameter>'\n",
    '<param name="x">',
]


@pytest.mark.parametrize("content", [f"x\n{one}\ny" for one in CONTENTS])
def test_a_closer_within_a_file_does_not_cut_it(content: str) -> None:
    text = text_of("qwen3-coder", call("write_file", {"path": "a", "content": content}))
    assert (
        calls(read([text], [DIALECTS["qwen3-coder"]], {"write_file": Tool("write_file")}))[0][1]["content"] == content
    )
    if "</function>" not in content:  # it closes a call, which other values test
        assert required_grammar("qwen3-coder").accepts(text)


@pytest.mark.parametrize("quoted", ["</parameter>\n</function>", "</parameter> <parameter=path>", "<parameter=x>"])
def test_value_cannot_contain_the_readers_end_of_a_value(quoted: str) -> None:
    text = text_of("qwen3-coder", call("write_file", {"path": "a", "content": "b"})).replace("b\n", f"b{quoted}b\n")
    assert quoted in text
    assert not required_grammar("qwen3-coder").accepts(text)


def test_the_tag_before_a_value_cannot_begin_it() -> None:
    """Models write it twice, so the reader drops the second one."""
    text = text_of("glm-4.7", call("write_file", {"path": "a", "content": "b"}))
    assert required_grammar("glm-4.7").accepts(text)
    assert not required_grammar("glm-4.7").accepts(text.replace("<arg_value>b", "<arg_value><arg_value>b"))
