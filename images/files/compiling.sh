# Read by the steps that compile for minutes: waits for one of two places, since BuildKit begins the
# steps of all images at once, and each compiler takes up to a gigabyte. Exports JOBS.
# The places are locks on files in a cache mount: they fall with the process that holds them.
# imgbuild reads the two lines that begin with "imgbuild: ": --step-timeout counts from the second,
# and the first is said again, so that waiting is not taken for an engine that says nothing.
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
