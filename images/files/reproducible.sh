# Every step that makes files of an image reads this file. It makes the same bytes of the same inputs on each day and
# machine.
export PYTHONHASHSEED=0

# Give the epoch's time to all files of a tree. In the system itself (/), change only files with a time of this step: a
# change of an older file would add a copy of it to the layer. BuildKit makes /dev at the start of the step, and the
# folders of mounts before that. Some of these are read-only.
settle() {
    if [ "$1" = / ]; then set -- / -xdev -newermt "@$(($(stat --format %Y /dev/fd) - 60))" \( -type l -o -writable \); fi
    find "$@" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

# uv records the time of a wheel that it installed from a folder.
forget_times() {
    find "$1" -name uv_cache.json -delete
    find "$1" -path '*.dist-info/RECORD' -exec sed -i /uv_cache.json/d {} +
}

# Compile the modules in the tree $2, which the image has at $3, with the Python $1. A .pyc has the time of its source, so
# set the times first. The files that a process compiled earlier affect the bytes of its next .pyc, so always use four.
compile_modules() {
    settle "$2"
    env -u SOURCE_DATE_EPOCH "$1" - "$2" "$3" << 'END'
import os, py_compile, sys

tree, place = sys.argv[1:]
found = (os.path.join(at, name) for at, _, names in os.walk(tree) for name in names if name.endswith(".py"))
modules = sorted(path for path in found if "lib2to3/tests" not in path)
children = []
for first in range(4):
    child = os.fork()
    if not child:
        for path in modules[first::4]:
            py_compile.compile(path, dfile=place + path[len(tree):], doraise=True)
        os._exit(0)
    children.append(child)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
END
    settle "$2"
}
