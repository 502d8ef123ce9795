"""Whether a sent function fared as documented: the table can be contradicted from either side."""

from typing import Any

import pytest
from pickling import fault_of_model, fault_of_module

ARRIVED = [3, "RunConfig"]
LAZY = "TypeError: can't pickle _LazyLoader objects"
ENDLESS = "RecursionError: maximum recursion depth exceeded while calling a Python object"
MISSING = "AttributeError: module 'tensorflow' has no attribute 'estimator'"
REFUSED = "TypeError: cannot pickle '_thread.RLock' object"
UNKNOWN = "ValueError: Unknown layer: 'Scale'. Please ensure you are using a `keras.utils…"


@pytest.mark.parametrize(
    ("judge", "tensorflow", "sender", "answer"),
    [
        (fault_of_module, (1, 15, 5), None, ENDLESS),
        (fault_of_module, (1, 15, 0), None, ARRIVED),
        (fault_of_module, (2, 0, 0), None, ARRIVED),
        (fault_of_module, (2, 2, 0), LAZY, None),
        (fault_of_module, (2, 2, 0), None, MISSING),
        (fault_of_model, (1, 10), None, 7),
        (fault_of_model, (2, 8), None, UNKNOWN),
        (fault_of_model, (2, 8), REFUSED, None),
        (fault_of_model, (2, 11), None, 7),
        (fault_of_model, (2, 13), None, UNKNOWN),
    ],
)
def test_anything_else_is_a_fault(
    judge: Any, tensorflow: tuple[int, ...], sender: str | None, answer: object
) -> None:
    assert judge(tensorflow, sender, answer) is not None
