"""The declarations that a guard needs before it can deny a call, tested with made-up guards."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from vtc.events import Call, Denied, Event, Intervention, OnFailure, Text, ToolCall
from vtc.guards import GuardChain, Guards, build_chain
from vtc.guards import chain as chain_module
from vtc.guards.chain import list_refusable_tools
from vtc.guards.guard import Guard, Refuses, match_every_tool

READ, BASH = (Call(f"<{name}>", ToolCall(name, "{}"), "tag") for name in ("read", "bash"))


def make_policies(guards: Sequence[Guard], monkeypatch: pytest.MonkeyPatch) -> Guards:
    """Make policies that build these guards."""
    monkeypatch.setattr(Guards, "build_call_guards", lambda *_, **__: iter(guards))
    return Guards()


class Refusing(Guard):
    """Denies each call."""

    def feed(self, event: Event) -> list[Event]:
        return [Denied(event.raw, event.call, "drop", "No.") if isinstance(event, Call) else event]


class Mute(Refusing):
    """Declares no tool whose calls it may deny."""

    def __init__(self) -> None:
        pass


def test_guard_without_declared_denials_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="refuses"):
        Refusing(on_failure="refuse")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="on_failure"):
        Refusing(refuses=match_every_tool)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="on_failure"):
        _ = make_policies([Mute()], monkeypatch).is_strict


@pytest.mark.parametrize("refuses", [None, lambda name: name == "read"])
@pytest.mark.parametrize("on_failure", ["refuse", "pass"])
def test_undeclared_denial_is_reported_as_a_failure_and_the_call_stays_denied(
    refuses: Refuses, on_failure: OnFailure
) -> None:
    intervention, denied = GuardChain([Refusing(refuses=refuses, on_failure=on_failure)]).feed(BASH)
    assert isinstance(intervention, Intervention)
    assert (intervention.policy, intervention.action, intervention.tool) == ("refusing", "refused", "bash")
    assert intervention.reason.endswith("UndeclaredRefusalError")
    assert isinstance(denied, Denied)


def test_declared_denial_is_final_and_later_guards_pass_it() -> None:
    refusing = Refusing(refuses=lambda name: name == "bash", on_failure="refuse")
    later = Refusing(refuses=None, on_failure="refuse")
    guards = GuardChain([refusing, later])
    assert [*guards.feed(BASH), *guards.feed(Text("a"))] == [Denied(BASH.raw, BASH.call, "drop", "No."), Text("a")]


@pytest.mark.parametrize(
    ("refuses", "on_failure", "strict", "refused"),
    [
        (match_every_tool, "refuse", True, ["read", "bash"]),
        (match_every_tool, "pass", False, ["read", "bash"]),
        (None, "refuse", False, []),
    ],
)
def test_possible_denials_of_policies_follow_from_their_guards(
    refuses: Refuses, on_failure: OnFailure, strict: bool, refused: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything else follows: that the policies check calls, and that nothing unchecked may be forwarded."""
    made = make_policies([Refusing(refuses=refuses, on_failure=on_failure)], monkeypatch)
    assert (made.checks_calls, made.is_strict, list_refusable_tools([made], ["read", "bash"])) == (
        True,
        strict,
        refused,
    )


def test_a_guard_without_a_place_in_the_order_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_policies([Refusing(refuses=match_every_tool, on_failure="refuse")], monkeypatch)
    with pytest.raises(ValueError, match="not in tuple"):
        build_chain([made], {})
    monkeypatch.setattr(chain_module, "CALL_GUARD_ORDER", (*chain_module.CALL_GUARD_ORDER, Refusing))
    assert isinstance(build_chain([made], {}).feed(READ)[-1], Denied)
