"""The workflows keep to the project's rules, and each rule finds what breaks it."""

import re
from pathlib import Path

import pytest
from conftest import ROOT

from actions.policy import problems
from actions.workflow import read_workflow, workflow_of

FILES = sorted((ROOT / ".github" / "workflows").iterdir())
COMMIT = "0123456789012345678901234567890123456789"
GOOD = f"""\
name: good
on: {{push: {{branches: [main]}}}}
permissions: {{}}
concurrency: {{group: good, cancel-in-progress: false}}
defaults: {{run: {{shell: bash}}}}
jobs:
  one:
    runs-on: ubuntu-24.04
    timeout-minutes: 5
    permissions: {{contents: read}}
    outputs:
      word: ${{{{ steps.say.outputs.word }}}}
    steps:
      - uses: actions/checkout@{COMMIT} # v1.2.3
        with: {{persist-credentials: false}}
      - id: say
        run: echo word=x >> "$GITHUB_OUTPUT"
  two:
    needs: one
    if: github.ref == 'refs/heads/main'
    runs-on: ubuntu-24.04
    timeout-minutes: 5
    permissions: {{contents: read, packages: write}}
    env:
      WORD: ${{{{ needs.one.outputs.word }}}}
    steps:
      - run: echo "$WORD"
  gate:
    needs: [one, two]
    if: always()
    runs-on: ubuntu-24.04
    timeout-minutes: 5
    permissions: {{}}
    env:
      RESULTS: ${{{{ join(needs.*.result, ' ') }}}}
    steps:
      - run: for result in $RESULTS; do [ "$result" = success ]; done
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_workflows_keep_to_the_rules(path: Path) -> None:
    assert problems(read_workflow(path), path.read_text(encoding="utf-8")) == []


def test_these_are_the_workflows() -> None:
    assert [path.name for path in FILES] == ["ci.yml", "images.yml", "nightly.yml"]
    assert "gate" in read_workflow(FILES[0]).jobs


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_can_be_set_is_documented(path: Path) -> None:
    page = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    named = re.findall(r"(?:vars|secrets)\.(\w+)", path.read_text(encoding="utf-8"))
    assert [name for name in named if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (f"@{COMMIT} # v1.2.3", "@v1 # v1.2.3", "actions/checkout@v1 is not pinned"),
        (f"@{COMMIT}", f"@{COMMIT[:12]}", "is not pinned by a commit"),
        (" # v1.2.3", "", "no release is named"),
        ("actions/checkout@", "some/action@", "some/action is used"),
        ("{persist-credentials: false}", "{persist-credentials: true}", "leaves its token"),
        ("    timeout-minutes: 5\n    permissions: {contents", "    permissions: {contents", "one"),
        ("timeout-minutes: 5", "timeout-minutes: 999", "no timeout-minutes up to 360"),
        ("permissions: {}\nconc", "conc", "the workflow's permissions must be {}"),
        ("permissions: {}\nconc", "permissions: write-all\nconc", "must be {}"),
        ("    permissions: {contents: read}\n", "", "one says nothing of its permissions"),
        ("{contents: read}", "{contents: write}", "one must not have contents: write"),
        ("push: {branches: [main]}", "pull_request: {}", "two must not have packages: write"),
        ("push: {branches: [main]}", "pull_request_target: {}", "gives strangers the secrets"),
        ("    if: github.ref == 'refs/heads/main'\n", "", "two writes packages: its `if` must be"),
        ("ref == 'refs/heads/main'", "ref != 'refs/heads/main'", "two writes packages"),
        ("ref == 'refs/heads/main'", "ref == 'refs/heads/main' || true", "two writes packages"),
        ("if: github.ref ==", "if: true || github.ref ==", "two writes packages"),
        ('echo "$WORD"\n', "true\n        env: {A: '${{ github.event.issue.title }}'}\n", "strang"),
        ('echo "$WORD"', "echo ${{ github.event.issue.title }}", "has ${{ github.event.issue.ti"),
        ("concurrency: {group: good, cancel-in-progress: false}\n", "", "no concurrency group"),
        ("defaults: {run: {shell: bash}}\n", "", "must be bash"),
        ("needs: [one, two]", "needs: [one]", "gate does not need two"),
        ("    if: always()\n", "", "gate must run with if: always()"),
        ("join(needs.*.result, ' ')", "github.actor", "gate does not look at the results"),
        ("needs.one.outputs.word", "needs.one.outputs.words", "is no output of a job that it"),
        ("needs: one\n", "needs: []\n", "is no output of a job that it needs"),
        ("needs: one\n", "needs: [one, none]\n", "two needs none, which is no job"),
        ("steps.say.", "steps.said.", "one: there is no step said"),
    ],
)
def test_a_workflow_that_breaks_a_rule(old: str, new: str, says: str) -> None:
    assert problems(workflow_of(GOOD, "good.yml"), GOOD) == []
    assert old in GOOD
    bad = GOOD.replace(old, new, 1)
    said = "\n".join(problems(workflow_of(bad, "bad.yml"), bad))
    assert re.search(re.escape(says), said), said


def test_a_workflow_for_pull_requests_names_no_secret() -> None:
    bad = GOOD.replace("push: {branches: [main]}", "pull_request: {}").replace(
        "needs.one.outputs.word", "secrets.KEY"
    )
    assert "a workflow for pull requests names secrets" in problems(workflow_of(bad, "b"), bad)
