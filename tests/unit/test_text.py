"""Spans of time as people write them."""

import pytest

from imgbuild.text import duration_text, parse_duration, size_text


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("1m30s", 90), ("30m", 1800), ("1h", 3600), ("1h30m5s", 5405)]
)
def test_durations_are_read_and_written(text: str, seconds: float) -> None:
    assert (parse_duration(text), duration_text(seconds)) == (seconds, text)


@pytest.mark.parametrize("text", ["", "10", "m", "-1s", "1.5h", "1s1h", "soon", "5 m"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as 90s, 30m"):
        parse_duration(text)


def test_sizes() -> None:
    texts = [size_text(size) for size in (999, 1500, 2_000_000, 3**21)]
    assert texts == ["999 bytes", "1.5 kB", "2.0 MB", "10.5 GB"]
