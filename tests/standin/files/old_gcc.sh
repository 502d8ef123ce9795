#!/bin/sh
# A stand-in for {name}: today's {real}, with the calling convention of std::function in 4.8
# (images/files/gcc4_std_function.py) and that compiler's version.
case " $* " in
    *" -dumpversion "*|*" -dumpfullversion "*) echo {version}; exit ;;
    *" --version "*) echo "{name} (stand-in on $({real} -dumpversion)) {version}"; exit ;;
    *" -dM "*)
        {real} "$@" | sed -e 's/^\(#define __VERSION__\) .*/\1 "{version}"/' \
            -e 's/^\(#define __GNUC__\) .*/\1 {major}/' \
            -e 's/^\(#define __GNUC_MINOR__\) .*/\1 {minor}/' \
            -e 's/^\(#define __GNUC_PATCHLEVEL__\) .*/\1 {patch}/'
        exit ;;
esac
exec {real} -I/{headers} -include /{headers}/implicit.h "$@"
