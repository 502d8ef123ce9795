"""The picture on a terminal, as text of a given width."""

import io

from rich.console import Console

from imgbuild.engine.board import Board
from imgbuild.engine.live_table import bar, overall_text, table
from imgbuild.engine.progress import BuildEvent, State, StepPlanned, Transfer


def board(count: int) -> Board:
    return Board.of([f"tf-1.{number}-cpu-debian-intelmpi" for number in range(count)])


def run(one: Board, image: str, state: State = "running", now: float = 0.0) -> None:
    step = "[horovod 2/2] RUN --mount=type=cache make " + "x" * 300
    one.event(StepPlanned(image, step, 1), now)
    one.event(StepPlanned(image, "[final 1/2] COPY a b", 2), now)
    one.event(BuildEvent(image, step, state, number=1), now)


def drawn(one: Board, width: int, height: int = 50, now: float = 10.0) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(table(one, width, height, now))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip("\n").splitlines()


def test_a_row_says_state_time_share_bytes_and_step() -> None:
    one = board(1)
    (image,) = one.rows
    run(one, image)
    one.event(Transfer((image,), 1, "layer", 12 * 10**6, 40 * 10**6), 1)
    (line,) = drawn(one, 200)
    words = line.split()
    assert words[:6] == [image, "building", "10.0s", "0%", "12/40", "MB"]
    assert "horovod 2/2 RUN make xxx" in line
    assert len(line.rstrip()) <= 200


def test_a_narrow_terminal_gets_one_line_an_image_too() -> None:
    one = board(5)
    for image in one.rows:
        run(one, image)
    for width in (40, 80, 200):
        lines = drawn(one, width)
        assert len(lines) == 5
        assert all(len(line) <= width for line in lines)
    assert all("horovod" in line for line in drawn(one, 80))


def test_more_images_than_lines_are_summed_up_and_the_urgent_ones_shown() -> None:
    one = board(34)
    images = [*one.rows]
    run(one, images[30], "running")
    run(one, images[33], "failed")
    for image in images[:10]:
        one.note(image, "named", "", 5, ended=True)
    lines = drawn(one, 100, 6)
    assert len(lines) == 6
    assert any(images[33] in line and "failed" in line for line in lines)
    assert any(images[30] in line and "building" in line for line in lines)
    assert lines[-1].startswith("and 29 more")
    assert "10 named" in lines[-1]
    assert "19 waiting" in lines[-1]


def test_all_fit() -> None:
    assert len(drawn(board(6), 100, 6)) == 6


def test_the_bar_fits_and_says_how_far_all_are() -> None:
    one = board(3)
    first, second, _ = one.rows
    run(one, first)
    one.note(second, "named", "", 5, ended=True)
    console = Console(file=io.StringIO(), width=80)
    console.print(bar(one, 0.45, 372, 80, 192))
    assert isinstance(console.file, io.StringIO)
    (line,) = console.file.getvalue().rstrip("\n").splitlines()
    assert line.endswith("1 of 3 done  45 %  3m12s  about 6m left")


def test_images_with_nothing_to_do_are_not_counted() -> None:
    one = board(3)
    one.expect(dict(zip(one.rows, ("nothing", "build", "test"), strict=True)), 0, tests=True)
    assert overall_text(one, 0.0, None, 1) == "0 of 2 done  0 %"


def test_the_share_of_all_never_falls_and_is_all_only_at_the_end() -> None:
    one = board(2)
    first, second = one.rows
    assert one.fraction((50, 50)) == 0.5
    assert one.fraction((50, 150)) == 0.5
    assert one.fraction((100, 0)) == 0.99
    for image in (first, second):
        one.note(image, "failed", "", 1, ended=True)
    assert one.fraction() == 1.0
