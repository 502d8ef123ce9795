# Read by the steps that compile for minutes: waits for one of two places, since BuildKit begins the
# steps of all images at once, and each compiler takes up to a gigabyte. Exports JOBS.
# The places are locks on files in a cache mount: they fall with the process that holds them.
place=
while [ -z "$place" ]; do
    for number in 1 2; do
        exec 9> "/run/places/$number"
        if flock --nonblock 9; then place=$number; break; fi
    done
    [ -n "$place" ] || sleep 0.5
done
JOBS=$(awk -v cores="$(nproc)" '/^MemAvailable/ { fit = int($2 / 2 / 1048576) }
    END { print (fit < 1 ? 1 : fit < cores ? fit : cores) }' /proc/meminfo)
export JOBS
