"""Spans of time as people write them."""

import pytest

from imgbuild.text import duration_text, parse_duration, size_text


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90s", 90), ("30m", 1800), ("1h", 3600), ("1h30m5s", 5405)]
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "-1s", "1.5h", "1s1h", "soon", "5 m"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as 90s, 30m"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0"), (90, "1m30s"), (1800, "30m"), (3600, "1h"), (5405, "1h30m5s")]
)
def test_durations_are_written(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(999, "999 bytes"), (1500, "1.5 kB"), (2_000_000, "2.0 MB"), (3**21, "10.5 GB")],
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text
