"""Give std::function the calling convention it had in g++ 4, for extensions of old TensorFlow.

In g++ 4 the invoker takes its arguments by value, from g++ 5 on by rvalue reference. A Horovod
compiled with the newer convention segfaults in TensorFlow 1.14's InferenceContext::Run. This
writes a copy of the compiler's own header with the old signature; it goes first on the include
path.
"""

import os
import re
import subprocess
import sys


def find_header():
    """Return the path of the bits/std_function.h that g++ uses."""
    command = ["g++", "-std=c++11", "-E", "-x", "c++", "-"]
    output = subprocess.check_output(command, input=b"#include <functional>\n").decode()
    found = re.search(r'^# \d+ "([^"]*/bits/std_function\.h)"', output, re.MULTILINE)
    if not found:
        sys.exit("g++ has no bits/std_function.h; is it older than 7?")
    return found.group(1)


def by_value(text):
    """Return the header with _M_invoke and _Invoker_type taking their arguments by value."""
    invoke, count = re.subn(r"(_M_invoke\(const _Any_data& __functor, _ArgTypes)&&", r"\1", text)
    typed, more = re.subn(
        r"(using _Invoker_type = _Res \(\*\)\(const _Any_data&, _ArgTypes)&&", r"\1", invoke
    )
    if count < 1 or more != 1:
        sys.exit("std_function.h has another shape than expected ({}, {})".format(count, more))
    return typed


def main(target):
    """Write the changed header below ``target``."""
    with open(find_header(), encoding="utf-8") as file:
        text = by_value(file.read())
    os.makedirs(os.path.join(target, "bits"))
    with open(os.path.join(target, "bits", "std_function.h"), "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1])
