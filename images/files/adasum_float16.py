"""Let Horovod's Adasum add float16 on every processor, without further compiler flags.

    adasum_float16.py SOURCE

Horovod's header has functions for float16 only if the compiler may use F16C and FMA everywhere.
TensorFlow's own wheels do not require these of a processor. Without the functions, float16 ends
with "Unsupported data type". This program changes the header: these functions alone are compiled
for F16C and FMA, and called if the processor has both. Other processors use the loops of the other
types.
"""

import os
import re
import sys

HEADER = os.path.join("horovod", "common", "ops", "adasum", "adasum.h")
#: A type for the loops of the other types, and a check of the processor. __builtin_cpu_supports of
#: gcc 7 does not know F16C. Its answer for FMA says that the system saves AVX's registers.
BESIDE = """\
#include <cpuid.h>
#include "../../half.h"

namespace horovod {
namespace common {

struct AdasumHalf {
  uint16_t bits;
  operator double() const {
    uint16_t from = bits;
    float number;
    HalfBits2Float(&from, &number);
    return number;
  }
  AdasumHalf& operator=(double number) {
    float from = (float)number;
    Float2HalfBits(&from, &bits);
    return *this;
  }
};

static inline bool HasF16cAndFma() {
  unsigned int eax, ebx, ecx, edx;
  static const bool result = __get_cpuid(1, &eax, &ebx, &ecx, &edx) &&
                             (ecx & bit_F16C) && __builtin_cpu_supports("fma");
  return result;
}
"""
#: The attribute of those functions.
TARGET = '__attribute__((target("avx,f16c,fma")))'
#: The choice by type. A case for float16 is added before the one for float32.
FLOAT32 = r"(#endif\n    )(if \(horovod_datatype == DataType::HOROVOD_)FLOAT32(\) \{\n      "
DOTS = r"ComputeDotAndNormSqrds\()\(float\*\)a, \(float\*\)b(,[^;]*;\n    \} else )"
SUMS = r"ScaledAdd\(count, acoeff, )\(float\*\)a, bcoeff, \(float\*\)b(,[^;]*;\n    \} else )"
BOTH = r"\2FLOAT16\3(AdasumHalf*)a,{} (AdasumHalf*)b\4\2FLOAT32\3(float*)a,{} (float*)b\4"
#: Pattern, replacement, and the number of matches.
EDITS = (
    (r"#if __AVX__ && __F16C__( && __FMA__)?\n", "#if __AVX__\n", 4),
    (r"\nnamespace horovod \{\nnamespace common \{\n", "\n" + BESIDE, 1),
    (r"(== DataType::HOROVOD_FLOAT16)(\) \{\n      \w+fp16\()", r"\1 && HasF16cAndFma()\2", 2),
    (FLOAT32 + DOTS, r"\1" + BOTH.format("", ""), 1),
    (FLOAT32 + SUMS, r"\1" + BOTH.format(" bcoeff,", " bcoeff,"), 1),
    (r"\n  inline (?=\S+ (\w+fp16|Mm\w+)\()", "\n  " + TARGET + " inline ", 7),
)  # fmt: skip


def changed(text):
    """Return the header with all changes; end the program if it is not as expected."""
    for pattern, replacement, times in EDITS:
        text, count = re.subn(pattern, replacement, text)
        if count != times:
            sys.exit("adasum.h: {!r} is there {} times, not {}".format(pattern, count, times))
    return text


def main(source):
    """Change the header below ``source``."""
    path = os.path.join(source, HEADER)
    with open(path, encoding="utf-8") as file:
        text = changed(file.read())
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1])
