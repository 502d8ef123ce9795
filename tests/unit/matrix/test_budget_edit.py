"""Budgets are written into matrix.yaml as a person would write them, and nothing else changes."""

import pytest

from imgbuild.errors import InputError
from imgbuild.matrix.budget_edit import with_budgets

TEXT = """\
# a comment
images:
  - {tensorflow: 1.10.0, variants: [cpu]}   # behind
  - {tensorflow: 2.0.0, cuda: {why: "}", of: "a"} , }
  - {tensorflow: 2.1.0, budget: {gpu: 70, cpu: 60}, variants: [cpu, gpu]}
  - tensorflow: 2.2.0
    budget: {cpu: 90} # agreed
    horovod: 1.0.0
  - tensorflow: 2.3.0
    horovod: {version: 0.20.3, why: best} # known

  # The same with Intel MPI
  - tensorflow: 2.3.1
    cuda:
      version: "10.1"
      why: one
        sentence

# the end
"""


def changed(budgets: dict[int, dict[str, int]]) -> list[tuple[str, str]]:
    """Return the lines that differ, old and new; an added line has no old one."""
    before, after = TEXT.splitlines(), with_budgets(TEXT, budgets).splitlines()
    added = len(after) - len(before)
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            assert before[index + (not added) :] == after[index + 1 :]
            return [("" if added else old.strip(), new)]
    return []


@pytest.mark.parametrize(
    ("index", "budget", "new"),
    [
        (
            0,
            {"cpu": 850},
            "  - {tensorflow: 1.10.0, variants: [cpu], budget: {cpu: 850}}   # behind",
        ),
        (
            1,
            {"gpu": 2, "cpu": 1},
            '  - {tensorflow: 2.0.0, cuda: {why: "}", of: "a"}, budget: {cpu: 1, gpu: 2} , }',
        ),
        (
            2,
            {"cpu": 65},
            "  - {tensorflow: 2.1.0, budget: {cpu: 65, gpu: 70}, variants: [cpu, gpu]}",
        ),
        (3, {"cpu": 91}, "    budget: {cpu: 91} # agreed"),
        (4, {"cpu": 92}, "    budget: {cpu: 92}"),
        (5, {"cpu": 93}, "    budget: {cpu: 93}"),
    ],
)
def test_one_line_changes_or_is_added(index: int, budget: dict[str, int], new: str) -> None:
    assert [line for _, line in changed({index: budget})] == [new]


def test_a_block_of_a_row_ends_before_the_comments_behind_it() -> None:
    lines = with_budgets(TEXT, {4: {"cpu": 92}, 5: {"cpu": 93}}).splitlines()
    at = lines.index("    budget: {cpu: 92}")
    assert lines[at - 1 : at + 3] == [
        "    horovod: {version: 0.20.3, why: best} # known",
        "    budget: {cpu: 92}",
        "",
        "  # The same with Intel MPI",
    ]
    assert lines[-4:] == ["        sentence", "    budget: {cpu: 93}", "", "# the end"]


def test_all_at_once_and_once_more() -> None:
    budgets = {index: {"cpu": 100 + index} for index in range(6)}
    once = with_budgets(TEXT, budgets)
    assert [f"cpu: {100 + index}" in once for index in range(6)] == [True] * 6
    assert with_budgets(once, budgets) == once
    assert with_budgets(TEXT, {}) == TEXT


def test_a_budget_over_several_lines_is_left_to_people() -> None:
    text = "images:\n  - tensorflow: 2.2.0\n    budget:\n      cpu: 1\n"
    with pytest.raises(InputError, match=r"matrix.yaml:2: write this row's budget as {cpu: 9} by"):
        with_budgets(text, {0: {"cpu": 9}})
