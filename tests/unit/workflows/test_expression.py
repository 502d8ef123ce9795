"""Expressions mean what GitHub's documentation says, and what is unknown is an error."""

from typing import Any

import pytest

from actions.expression import PURE, Scope, expressions
from actions.values import ExpressionError

SCOPE = Scope(
    {
        "github": {"repository": "me/mine", "run_number": 7},
        "vars": {"GPU_RUNNER": "", "CACHE": "here"},
        "inputs": {"refresh": None},
        "matrix": {"images": "tf-2.2-gpu-ubuntu tf-2.2-cpu-ubuntu", "shard": "1/2"},
        "needs": {
            "plan": {"result": "success", "outputs": {"shards": '{"include":[]}'}},
            "other": {"result": "skipped", "outputs": {}},
        },
    },
    {**PURE, "always": lambda: True},
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("github.repository", "me/mine"),
        ("github['repository']", "me/mine"),
        ("vars.GPU_RUNNER || 'ubuntu'", "ubuntu"),
        ("vars.CACHE || 'ubuntu'", "here"),
        ("contains(matrix.images, '-GPU-') && vars.CACHE || 'ubuntu'", "here"),
        ("contains(matrix.images, '-gpu-') && vars.GPU_RUNNER || 'ubuntu'", "ubuntu"),
        ("!vars.GPU_RUNNER && '--allow' || ''", "--allow"),
        ("!vars.CACHE && '--allow' || ''", ""),
        ("inputs.refresh && 'a' || 'b'", "b"),
        ("format('ghcr.io/{0}/x{1}', github.repository, github.run_number)", "ghcr.io/me/mine/x7"),
        ("fromJSON(needs.plan.outputs.shards).include[0] != null", False),
        ("fromJSON('{\"include\":[{}]}').include[0] != null", True),
        ("join(needs.*.result, ' ')", "success skipped"),
        ("contains(needs.*.result, 'skipped')", True),
        ("'A' == 'a' && (1 != 2)", True),
        ("null == ''", True),
        ("'1' == 1", True),
        ("'it''s'", "it's"),
        ("true && !false", True),
        ("1.5", 1.5),
        ("always()", True),
    ],
)
def test_values(text: str, value: Any) -> None:
    assert SCOPE.value(text) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nobody.x", "no context 'nobody'"),
        ("vars.NOT_SET", "vars has no 'NOT_SET'"),
        ("needs.plan.outputs.shard", "has no 'shard'"),
        ("hashFiles('x')", "the function hashFiles"),
        ("1 +", "not understood"),
        ("vars.CACHE vars.CACHE", "not understood"),
        ("(vars.CACHE", "is missing"),
        ("vars.CACHE ||", "too early"),
        (")", "not understood"),
    ],
)
def test_errors(text: str, says: str) -> None:
    with pytest.raises(ExpressionError, match=says):
        SCOPE.value(text)


def test_a_text_that_is_one_expression_keeps_its_type() -> None:
    assert SCOPE.text("${{ fromJSON('[1]') }}") == [1]
    assert SCOPE.text("n ${{ github.run_number }}, ${{ vars.CACHE }}, ${{ true }}") == (
        "n 7, here, true"
    )
    assert SCOPE.text("${{ fromJSON('[1]') }}, ${{ null }}") == "[1], "
    assert SCOPE.text(5) == 5


def test_conditions_may_leave_the_braces_out() -> None:
    assert SCOPE.condition("vars.CACHE == 'here'")
    assert not SCOPE.condition("${{ vars.GPU_RUNNER }}")
    assert expressions("a ${{ b }} ${{c}}") == ["b", "c"]
