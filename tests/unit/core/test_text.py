"""Spans of time and sizes as people write them, and messages without secrets."""

import io
import sys

import pytest

from imgbuild.cli.options import info
from imgbuild.core.text import duration_text, parse_duration, printable, ranges, without_logins
from imgbuild.inputs.download import show_progress


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("1m30s", 90), ("30m", 1800), ("1h", 3600), ("1h30m5s", 5405)]
)
def test_durations_are_read_and_written(text: str, seconds: float) -> None:
    assert (parse_duration(text), duration_text(seconds)) == (seconds, text)


@pytest.mark.parametrize(
    "text", ["", "10", "m", "-1s", "1.5h", "1s1h", "soon", "5 m", "9999999h", f"{'9' * 5000}s"]
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as 90s, 30m"):
        parse_duration(text)


@pytest.mark.parametrize(("found", "text"), [("abefcx", "a to c, e, f"), ("", "")])
def test_three_or_more_that_are_together_are_a_range(found: str, text: str) -> None:
    assert ranges(found, "abcdef") == text


def test_a_text_for_terminals() -> None:
    assert printable("a\tb\n é ✓ \u200d") == "a\tb\n é ✓ \u200d"
    assert printable("\x1b[1m\r\x9b\u2066\u202e") == r"\u001b[1m\u000d\u009b\u2066\u202e"
    assert printable("\ud800 \udce9 😀") == r"\ud800 \udce9 😀"


def test_colours_are_for_rich_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich stands in for standard error while it draws."""
    monkeypatch.setenv("TERM", "xterm")
    content = io.BytesIO()
    terminal = io.TextIOWrapper(content, encoding="utf-8", write_through=True)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    info("\x1b[31mone")
    with show_progress():
        info("\x1b[31mtwo\u202e")
    said = content.getvalue().decode()
    assert said.startswith("\\u001b[31mone\n")
    assert "\\u001b[31mtwo\\u202e" in said
    assert "\x1b[?25l" in said


@pytest.mark.parametrize(
    "text",
    [
        "GET https://h.example:8080/simple@1: 404",
        "https://h.example: it refused NAME@sha256:0",
        "file:///home/me@x and https://h.example/a:b/c@d",
        "ubuntu:18.04@sha256:0",
        "docker://ubuntu:latest@sha256:0",
        "https://[::1]:5000/a@b and http://[::1]/x:y@z and [::1]:5000/x@y",
        "matrix.yaml:3:5: write to me@h.example",
        "https://h.example: no answer; write to me@h.example",
    ],
)
def test_an_address_without_a_login_stays(text: str) -> None:
    assert without_logins(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--registry u:secret@h.example/x", "--registry h.example/x"),
        ("publishing: 'u:se/cret@h.example:5000/x'", "publishing: 'h.example:5000/x'"),
        ("http://u:se cret@h.example", "http://h.example"),
        ("https://u:secret@[::1]/x", "https://[::1]/x"),
    ],
)
def test_an_address_loses_its_login(text: str, expected: str) -> None:
    assert without_logins(text) == expected


@pytest.mark.timeout(10)
@pytest.mark.parametrize("part", ["://", "a:", "://a:", "x:y ", "@", "(a:"])
def test_a_long_text_takes_no_quadratic_time(part: str) -> None:
    assert without_logins(part * 20_000) == part * 20_000
