"""Let Horovod's Adasum add float16 on processors for arm64.

    adasum_float16.py PROGRAM SOURCE

Horovod's header has functions for float16 only for x86-64. Without them, float16 ends with
"Unsupported data type". This program changes the header, so that float16 uses the loops of the
other types. PROGRAM changes the same header for x86-64 (images/files/adasum_float16.py). It has
the edits, of which this program takes those that do not depend on the processor.
"""

import importlib.util
import sys


def edits_for_arm64(usual):
    """Return the edits without the functions for F16C and FMA, and without their check."""
    beside, check = usual.BESIDE.split("static inline bool HasF16cAndFma")
    beside = beside.replace("#include <cpuid.h>\n", "")
    if "cpuid" in beside or "__get_cpuid" not in check:
        sys.exit("adasum_float16.py has another check of the processor than expected")
    kept = []
    for pattern, replacement, times in usual.EDITS:
        if pattern.startswith(usual.FLOAT32):
            kept.append((pattern, replacement, times))
        elif usual.BESIDE in replacement:
            kept.append((pattern, replacement.replace(usual.BESIDE, beside), times))
    return tuple(kept)


def main(program, source):
    """Change the header below ``source``."""
    spec = importlib.util.spec_from_file_location("usual_adasum", program)
    usual = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(usual)
    usual.EDITS = edits_for_arm64(usual)
    usual.main(source)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
