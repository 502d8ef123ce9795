#!/bin/sh
# Install the lock of an extension, checked by hash, into a tree of its own: /out, which is copied onto /.
#
#     install EPOCH
#
# EPOCH is the time of every file, in seconds. Beside this file: same-paths, packages.txt, and build.txt, the lock of what
# builds source distributions. The packages' files are in /run/distributions, the user's own wheels in /run/wheels. Nothing is
# downloaded: a package's code that runs here sees no network, no secret and no cache of other builds.
set -eu
here=${0%/*}
# The lock has been made to fit: an image's own constraints have no hashes.
unset UV_CONSTRAINT PIP_CONSTRAINT
python=$(command -v python3)
prefix=$("$python" -c 'import sys; print(sys.prefix)')
epoch=$1
shift
if [ -e "$here/build.txt" ]; then set -- --build-constraints "$here/build.txt"; fi
if [ -d /run/wheels ]; then set -- "$@" --find-links /run/wheels; fi
uv pip install --no-config --no-cache --offline --no-index --find-links /run/distributions --python "$python" --prefix "/out$prefix" \
    --link-mode copy --no-deps --require-hashes --requirement "$here/packages.txt" "$@"
rm -f "/out$prefix/.lock"
"$python" "$here/same-paths" /out
# These packages are kept as the base's own are, by the file that its PIP_CONSTRAINT names.
held=$prefix/constraints.txt
if [ -e "$held" ]; then
    sed -nE 's/^([A-Za-z0-9._-]+==[^ ;\\]+).*/\1/p' "$here/packages.txt" > /tmp/added.txt
    cat "$held" /tmp/added.txt > "/out$held"
fi
# A .pyc is valid only for the exact time of its source: set the times, then compile.
find /out -exec touch --no-dereference --date="@$epoch" {} +
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
if [ -d "/out$site" ]; then "$python" -m compileall -q -j 0 -d "$site" "/out$site" || true; fi
