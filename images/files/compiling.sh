# Steps that compile for minutes read this file. It waits for one of two places and exports JOBS.
# BuildKit starts the steps of all images at once, and each compiler needs up to a gigabyte.
# A place is a lock on a file in a cache mount. The lock ends with the process that holds it.
# imgbuild reads the two lines that begin with "imgbuild: ". --step-timeout counts from the second.
# The first is repeated, so that a waiting step does not look like an engine that hangs.
place=
waited=0
while [ -z "$place" ]; do
    for number in 1 2; do
        exec 9> "/run/places/$number"
        if flock --nonblock 9; then place=$number; break; fi
    done
    [ -n "$place" ] && break
    # every 10 s
    [ $((waited % 20)) -ne 0 ] || echo "imgbuild: waits for a place to compile"
    waited=$((waited + 1))
    sleep 0.5
done
[ "$waited" -eq 0 ] || echo "imgbuild: has a place to compile"
JOBS=$(awk -v cores="$(nproc)" '/^MemAvailable/ { fit = int($2 / 2 / 1048576) }
    END { print (fit < 1 ? 1 : fit < cores ? fit : cores) }' /proc/meminfo)
export JOBS
