"""What an interrupted command says."""

import pytest

from imgbuild.cli import interruption


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["build", "--all"], "Images that passed are tagged"),
        (["--settings", "file", "push", "--tf", "2.2"], "Run the same command again"),
        (["test"], "Nothing is left running"),
        (["published", "--from", "registry.test/app"], "Nothing is left running"),
        ([], "Nothing is left running"),
    ],
)
def test_each_command_tells_how_things_stand(words: list[str], said: str) -> None:
    assert interruption(words).startswith("interrupted. ")
    assert said in interruption(words)
