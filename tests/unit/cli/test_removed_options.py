"""Removed options and variables end with exit code 2 and name what replaces them."""

import pytest

from imgbuild.cli.removed_options import REMOVED_COMMANDS, REMOVED_OPTIONS
from support.project_copy import NO_ENGINE, ROOT, run_main

OWN = {**NO_ENGINE, "IMGBUILD_PROJECT": str(ROOT)}


@pytest.mark.parametrize(
    ("words", "replacement"),
    [
        (("build", "--as-documented", "--tf", "2.1"), "imgbuild show"),
        (("list", "--as-documented"), "imgbuild show"),
        (("build", "--log-format", "json"), "--json"),
        (("build", "--log-format=text", "--dry-run"), "--json"),
        (("matrix", "--changed-since", "HEAD~1"), "--missing"),
        (("test", "--expect", "tf=2.2", "me/train:1"), "imgbuild test IMAGE"),
        (("build", "--plan"), "--dry-run"),
        (("test", "--rerun"), "--refresh"),
        (("build", "--refresh-base"), "--refresh"),
        (("clean", "--remove"), "--yes"),
        (("lock", "--all"), "--refresh"),
        (("add", "--tf", "2.3.4"), "imgbuild add 2.3.4"),
        (("build", "--name", "tf-2.2-cpu-debian"), "imgbuild build IMAGE"),
        (("test", "--image=me/train:1"), "imgbuild test IMAGE"),
        (("extend", "--base", "me/train:1"), "imgbuild extend IMAGE"),
        (("build", "--cache-from", "registry.example.org/ci/cache"), "--pull"),
        (("build", "--cache-to=registry.example.org/ci/cache"), "--buildkit-cache"),
        (("release", "--cache", "prune", "--keep", "3"), "always deletes"),
        (("push", "--allow-cached", "--all"), "imgbuild build"),
    ],
)
def test_removed_option_names_replacement(words: tuple[str, ...], replacement: str) -> None:
    done = run_main(ROOT, *words, env=OWN)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{words[1].partition('=')[0]} was removed" in done.stderr
    assert replacement in done.stderr


@pytest.mark.parametrize(("name", "replacement"), REMOVED_COMMANDS.items())
def test_removed_command_names_replacement(name: str, replacement: str) -> None:
    for words in ((name, "--json"), ("help", name), ("--settings", "x.yaml", name, "--tf", "2.2")):
        done = run_main(ROOT, *words, env=OWN)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"`imgbuild {name}` was removed. Use `{replacement}`." in done.stderr


def test_removed_variable_names_replacement() -> None:
    done = run_main(ROOT, "list", env={**OWN, "IMGBUILD_LOG_FORMAT": "json"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "IMGBUILD_LOG_FORMAT was removed" in done.stderr
    assert "--json" in done.stderr


def test_no_command_has_a_removed_option() -> None:
    help_texts = (ROOT / "tests" / "unit" / "golden" / "help").glob("*.txt")
    words = {word for path in help_texts for word in path.read_text("utf-8").split()}
    assert "--json" in words
    assert not words & {*REMOVED_OPTIONS}
