"""Whether a sent function fared as documented: the table can be contradicted from either side."""

from __future__ import annotations

import pytest
from pickling import OF_A_MODEL, fault_of_model, fault_of_module

ARRIVED = [3, "RunConfig"]
LAZY = "TypeError: can't pickle _LazyLoader objects"
ENDLESS = "RecursionError: maximum recursion depth exceeded while calling a Python object"
MISSING = "AttributeError: module 'tensorflow' has no attribute 'estimator'"


@pytest.mark.parametrize(
    ("tensorflow", "sender", "answer"),
    [
        ((1, 14, 0), None, ARRIVED),
        ((1, 15, 0), None, ENDLESS),
        ((1, 15, 5), None, MISSING),
        ((2, 0, 4), LAZY, None),
        ((2, 1, 0), None, MISSING),
        ((2, 2, 0), None, ARRIVED),
    ],
)
def test_what_is_documented_is_no_fault(
    tensorflow: tuple[int, ...], sender: str | None, answer: object
) -> None:
    assert fault_of_module(tensorflow, sender, answer) is None


@pytest.mark.parametrize(
    ("tensorflow", "sender", "answer", "says"),
    [
        ((1, 15, 5), None, ENDLESS, "not AttributeError"),
        ((1, 15, 0), None, ARRIVED, "receiver's fault is None"),
        ((2, 0, 0), None, ARRIVED, "sender's fault is None"),
        ((2, 2, 0), LAZY, None, "sender's fault is TypeError"),
        ((2, 2, 0), None, MISSING, "receiver's fault is AttributeError"),
        ((1, 15, 0), None, MISSING, "not RecursionError"),
    ],
)
def test_anything_else_is_a_fault(
    tensorflow: tuple[int, ...], sender: str | None, answer: object, says: str
) -> None:
    assert says in (fault_of_module(tensorflow, sender, answer) or "")


@pytest.mark.parametrize(
    ("fault", "known"),
    [
        ("TypeError: can't pickle _thread.RLock objects", True),
        ("TypeError: can't pickle _thread._local objects", True),
        ("TypeError: cannot pickle '_thread.RLock' object", True),
        ("TypeError: cannot pickle 'weakref' object", True),
        ("TypeError: cannot pickle '_LazyLoader' object", False),
        ("NotImplementedError: numpy() is only available when eager execution is enabled.", True),
        (LAZY, False),
        ("nothing: it was pickled", False),
    ],
)
def test_a_models_fault_is_a_lock_or_a_refused_variable(fault: str, *, known: bool) -> None:
    assert bool(OF_A_MODEL.match(fault)) is known


REFUSED = "TypeError: cannot pickle '_thread.RLock' object"
UNKNOWN = "ValueError: Unknown layer: 'Scale'. Please ensure you are using a `keras.utils…"


@pytest.mark.parametrize(
    ("tensorflow", "sender", "answer", "right"),
    [
        ((1, 10), REFUSED, None, True),
        ((1, 10), None, 7, False),
        ((1, 10), None, UNKNOWN, False),
        ((2, 6), None, 7, False),
        ((2, 8), None, 7, True),
        ((2, 8), None, UNKNOWN, False),
        ((2, 8), REFUSED, None, False),
        ((2, 11), None, UNKNOWN, True),
        ((2, 11), None, "AttributeError: no such model", False),
        ((2, 11), None, 7, False),
        ((2, 13), None, "TypeError: 'str' object is not callable", True),
        ((2, 12), None, UNKNOWN, True),
        ((2, 13), None, UNKNOWN, False),
    ],
)
def test_a_model_is_refused_or_arrives_or_asks_for_its_layer(
    tensorflow: tuple[int, int], sender: str | None, answer: object, *, right: bool
) -> None:
    assert (fault_of_model(tensorflow, sender, answer) is None) is right
