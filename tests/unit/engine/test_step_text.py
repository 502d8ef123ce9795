"""Steps, durations and sizes as people read them."""

import pytest

from imgbuild.engine.step_text import about, clock_time, moved_text, shortened, stage_of


def test_a_long_step_is_shortened() -> None:
    assert shortened("[a 1/2] " + "x" * 100, 20) == "a 1/2 " + "x" * 13 + "…"
    assert shortened("exporting [to] image") == "exporting [to] image"


def test_options_and_here_documents_are_left_out() -> None:
    step = "[packages 1/1] RUN --mount=type=bind,from=uv   --network=none <<'EOT' (set -eu...)"
    assert shortened(step) == "packages 1/1 RUN"
    assert shortened("[final 2/4] COPY --link --from=a /out/ /") == "final 2/4 COPY /out/ /"
    assert shortened("[a 1/1] RUN pip --version") == "a 1/1 RUN pip --version"


@pytest.mark.parametrize(
    ("step", "stage"),
    [("[horovod 2/2] RUN x", "horovod"), ("exporting to image", ""), ("[os] RUN y", "os")],
)
def test_a_step_belongs_to_a_stage(step: str, stage: str) -> None:
    assert stage_of(step) == stage


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.0s"), (12.34, "12.3s"), (245, "4m05s"), (3725, "1h02m")]
)
def test_durations(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "10s"), (33, "30s"), (54, "50s"), (58, "1m"), (370, "6m"), (3600, "1h"), (5000, "1h20m")],
)
def test_estimates_are_coarse(seconds: float, text: str) -> None:
    assert about(seconds) == text


@pytest.mark.parametrize(
    ("current", "total", "text"),
    [
        (0, 0, ""),
        (999_999, 0, ""),
        (12 * 10**6, 40 * 10**6, "12/40 MB"),
        (40 * 10**6, 40 * 10**6, "40 MB"),
        (40 * 10**6, 0, "40 MB"),
        (5 * 10**8, 2 * 10**9, "0.5/2.0 GB"),
    ],
)
def test_bytes(current: int, total: int, text: str) -> None:
    assert moved_text(current, total) == text
