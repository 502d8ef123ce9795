"""Give std::function the calling convention of g++ 4, for extensions of old TensorFlow.

In g++ 4, the invoker takes its arguments by value; since g++ 5, by rvalue reference. A Horovod with
the newer convention crashes in InferenceContext::Run of TensorFlow 1.14. This program writes a copy
of the compiler's own header with the old signature. The copy must be first on the include path.
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
    """Return the header in which _M_invoke and _Invoker_type take their arguments by value."""
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
