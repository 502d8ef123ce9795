"""What becomes of a function that names TensorFlow or a model as a global, sent to another process.

Found by sending it with cloudpickle 2.2.1, with each TensorFlow of the matrix; see
docs/frameworks.md. A function that imports TensorFlow itself arrives with every one.
"""

from __future__ import annotations

import re

_MISSING = r"AttributeError: module 'tensorflow' has no attribute"
#: By TensorFlow, the first releases in their order: who raises, and what; then the module arrives.
OF_THE_MODULE = {
    (1, 10, 0): ("nobody", ""),
    # The module is wrapped; what is unpickled asks for an attribute before it has any, for ever.
    (1, 15, 0): ("receiver", r"RecursionError: maximum recursion depth exceeded"),
    # What it loads at first use is missing where it arrives: keras, estimator, summary, compat. Of
    # 1.15 this is so in 1.15.5; the four releases before were not tried.
    (1, 15, 1): ("receiver", _MISSING),
    (2, 0, 0): ("sender", r"TypeError: can't pickle _LazyLoader objects"),
    (2, 1, 0): ("receiver", _MISSING),
    (2, 2, 0): ("nobody", ""),
}
#: A compiled model holds a lock; in 1.12 and 1.13 its variables refuse before that is met.
OF_A_MODEL = re.compile(
    r"TypeError: (can't|cannot) pickle '?(_thread\.\w+|weakref)'? object"
    r"|NotImplementedError: numpy\(\) is only available when eager execution is enabled"
)
#: From 2.7 on Keras pickles a model itself, and a copy arrives; from 2.11 on one with layers of the
#: program asks for their classes.
PICKLES_MODELS, ASKS_FOR_CLASSES = (2, 7), (2, 11)
UNKNOWN_LAYER = r"ValueError: Unknown layer: '?Scale"
#: From 2.13 on it calls the name that stands for such a class.
CALLS_NAMES, CALLED_NAME = (2, 13), r"TypeError: 'str' object is not callable"
#: Keras 3 looks for the class among those that are registered.
KERAS_3, UNKNOWN_CLASS = (2, 16), r"Could not locate class 'Scale'"


def fault_of_module(tensorflow: tuple[int, ...], sender: str | None, answer: object) -> str | None:
    """Return what is not as documented where a function names the module; None where all is.

    `sender` is the sender's fault, if any; `answer` what the receiver returned or raised.
    """
    who, words = OF_THE_MODULE[max(first for first in OF_THE_MODULE if first <= tensorflow)]
    return _fault(who, words, sender, answer)


def fault_of_model(tensorflow: tuple[int, int], sender: str | None, answer: object) -> str | None:
    """Return the same where it names the model of framework_model.py, with a layer of its own."""
    if tensorflow >= KERAS_3:
        return _fault("receiver", UNKNOWN_CLASS, sender, answer)
    if tensorflow >= CALLS_NAMES:
        return _fault("receiver", CALLED_NAME, sender, answer)
    if tensorflow >= ASKS_FOR_CLASSES:
        return _fault("receiver", UNKNOWN_LAYER, sender, answer)
    if tensorflow >= PICKLES_MODELS:
        return _fault("nobody", "", sender, answer)
    return _fault("sender", OF_A_MODEL, sender, answer)


def _fault(
    who: str, words: str | re.Pattern[str], sender: str | None, answer: object
) -> str | None:
    happened = {"sender": sender, "receiver": answer if isinstance(answer, str) else None}
    for place, fault in happened.items():
        if (place == who) != (fault is not None):
            return f"the {place}'s fault is {fault}, and {who} should have one"
    told = happened.get(who)
    return None if told is None or re.search(words, told) else f"{told}, not {words}"
