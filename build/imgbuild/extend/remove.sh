#!/bin/sh
# Remove packages of the base that the lock has in other versions.
#
#     remove EPOCH NAME...
#
# EPOCH is the time of every changed folder, in seconds. No code of a package runs.
set -eu
python=$(command -v python3)
prefix=$("$python" -c 'import sys; print(sys.prefix)')
epoch=$1
shift
uv pip uninstall --no-config --no-cache --offline --python "$python" "$@"
rm -f "$prefix/.lock"
find "$prefix" -type d -newermt "@$epoch" -exec touch --date="@$epoch" {} +
