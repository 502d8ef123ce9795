"""Spans of time and sizes as people write them, and messages without secrets."""

import pytest

from imgbuild.text import duration_text, parse_duration, size_text, without_logins


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


@pytest.mark.parametrize(
    "text",
    [
        "GET https://h.example:8080/simple@1: 404",
        "https://h.example: it refused NAME@sha256:0",
        "file:///home/me@x and https://h.example/a:b/c@d",
        "ubuntu:18.04@sha256:0",
    ],
)
def test_an_address_without_a_login_stays(text: str) -> None:
    assert without_logins(text) == text
