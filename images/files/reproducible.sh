# Read by every step that makes files of an image: the same inputs make the same bytes, on any day and any machine.
export PYTHONHASHSEED=0

# Give the epoch's time to all of a tree; of the system itself (/) to what got its time in this step, since a copy of what
# is older would come into the layer. /dev is made at its start, the folders of mounts, of which some are read-only, before.
settle() {
    if [ "$1" = / ]; then set -- / -xdev -newermt "@$(($(stat --format %Y /dev/fd) - 60))" \( -type l -o -writable \); fi
    find "$@" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

# Of a wheel that lay in a folder, uv notes the time.
forget_times() {
    find "$1" -name uv_cache.json -delete
    find "$1" -path '*.dist-info/RECORD' -exec sed -i /uv_cache.json/d {} +
}

# Compile the modules in the tree $2, which the image has at $3, with the Python $1. A .pyc has the time of its source, so
# that is set before; what a process compiled before decides bytes of the next .pyc, so there are four on every machine.
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
