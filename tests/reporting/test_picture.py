"""The geometry of the charts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vtc.reporting import ExchangeSample, draw_charts
from vtc.reporting.picture import CHART_HEIGHT, CHART_WIDTH, SPAN_COUNT, Chart

OUTCOMES = {"unchanged": "quiet", "rewritten": "good", "denied": "warn", "left as text": "warn", "error": "bad"}


def draw_by_name(*samples: ExchangeSample) -> dict[str, Chart]:
    return {chart.name: chart for chart in draw_charts(samples, OUTCOMES)}


def test_without_exchanges_there_is_nothing() -> None:
    assert draw_charts([], OUTCOMES) == []


def test_one_exchange_is_one_bar() -> None:
    found = draw_by_name(ExchangeSample(100.0, "rewritten", made=2, seconds=0.004))
    assert [*found] == ["exchanges", "calls", "time in VTC"]  # no prompt before it, of which something might be kept
    (bar,) = found["exchanges"].bars
    assert bar.segments == (("good", 0, CHART_HEIGHT),)
    assert (found["calls"].sums["without repair"], found["time in VTC"].sums["median"]) == (2, 4)


def test_heights_of_bars_are_proportional_to_their_values() -> None:
    found = draw_by_name(
        ExchangeSample(0, "error"),
        ExchangeSample(0, "rewritten"),
        ExchangeSample(0, "rewritten"),
        ExchangeSample(48, "unchanged"),
    )
    first, last = found["exchanges"].bars
    assert [(part.tone, part.height) for part in first.segments] == [("good", 42.67), ("bad", 21.33)]
    assert [(part.tone, part.height) for part in last.segments] == [("quiet", 21.33)]
    assert (first.x, last.x) == (0, (SPAN_COUNT - 1) * CHART_WIDTH / SPAN_COUNT)
    assert (first.since, first.until, last.until) == (0, 1, 48)
    assert found["exchanges"].top == 3


def test_each_outcome_is_counted_in_any_colour() -> None:
    chart = draw_by_name(
        ExchangeSample(0, "denied"), ExchangeSample(0, "left as text"), ExchangeSample(0, "left as text")
    )["exchanges"]
    assert chart.sums == {"denied": 1, "left as text": 2}
    assert [part.tone for part in chart.bars[0].segments] == ["warn", "warn"]


def test_kept_prompts_are_a_share() -> None:
    bars = draw_by_name(
        ExchangeSample(0, "rewritten", kept=75, lost=25),
        ExchangeSample(9, "rewritten"),
        ExchangeSample(48, "rewritten", kept=1),
    )["prompt cache"].bars
    assert [[part.height for part in bar.segments] for bar in bars] == [[48, 16], [64]]


def test_calls_are_grouped_by_outcome() -> None:
    samples = [
        ExchangeSample(0, "left as text", made=3, repaired=1, refused=2),
        ExchangeSample(0, "rewritten", made=1),
        ExchangeSample(0, "unread", unread=1),
    ]
    expected = {"without repair": 4, "repaired": 1, "left as text": 2, "unread": 1}
    assert draw_by_name(*samples)["calls"].sums == expected


def test_time_is_the_median() -> None:
    chart = draw_by_name(
        *(ExchangeSample(0, "rewritten", seconds=one) for one in (0.002, 0.5, 0.001)),
        ExchangeSample(1, "rewritten", seconds=0.003),
    )
    assert (chart["time in VTC"].top, chart["time in VTC"].sums["median"]) == (3, 2.5)


SAMPLES = st.builds(
    ExchangeSample,
    st.floats(0, 4e9),
    st.sampled_from([*OUTCOMES]),
    *[st.integers(0, 10_000)] * 6,
    st.floats(0, 1e4),
)


@given(st.lists(SAMPLES, max_size=40))
def test_every_exchange_is_drawn_inside_the_plane(samples: list[ExchangeSample]) -> None:
    for chart in draw_charts(samples, OUTCOMES):
        if chart.name == "exchanges":
            assert sum(sum(bar.figures.values()) for bar in chart.bars) == len(samples)
        for bar in chart.bars:
            assert 0 <= bar.x < bar.x + bar.width <= CHART_WIDTH
            for part in bar.segments:
                assert 0 <= part.y <= CHART_HEIGHT
                assert 0 < part.height <= CHART_HEIGHT
