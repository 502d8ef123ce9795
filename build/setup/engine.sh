#!/usr/bin/env bash
# Set up a Docker engine with buildx on Debian 12 or Ubuntu 24.04, apart from any other engine.
#
#   engine.sh                      use the engine that answers; without one, install and start one
#   engine.sh stop                 stop the engine that this script started, and its containers
#   engine.sh --store STORE        start an engine for tests with the image store `containerd` or
#                                  `graph`; it has no network, so it can run beside any other
#   engine.sh stop --store STORE   stop that one and remove its data
#
# An engine that is there is never touched. Prints the engine's address. Its data and socket are in
# IMGBUILD_ENGINE_STATE (/var/lib/imgbuild) and IMGBUILD_ENGINE_RUN (/run/imgbuild); only packages
# are written elsewhere. IMGBUILD_DOCKERD_OPTIONS holds more options for dockerd.
set -euo pipefail
PATH=$PATH:/usr/sbin # where dockerd is, and plain users do not look

action=start store='' name=imgbuild
while (($#)); do
    case $1 in
        start | stop) action=$1 ;;
        --store) store=${2:?containerd or graph} name=imgbuild-$2 && shift ;;
        *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
    esac
    shift
done
state=${IMGBUILD_ENGINE_STATE:-/var/lib/$name}
run=${IMGBUILD_ENGINE_RUN:-/run/$name}
own=unix://$run/docker.sock
settings=$(dirname "${BASH_SOURCE[0]}")/../../imgbuild.local.yaml
read -ra options <<<"${IMGBUILD_DOCKERD_OPTIONS:-}"

say() { printf '%s\n' "$*" >&2; }
fail() { say "engine.sh: $*" && exit 3; }
answers() { timeout 10 docker ${1:+--host "$1"} version >/dev/null 2>&1; }

# Print the ids of the processes whose command line fits a regular expression; fail without one.
processes() {
    local file words found=1
    for file in /proc/[0-9]*/cmdline; do
        mapfile -d '' words <"$file" || continue
        if [[ ${words[*]} =~ $1 ]]; then echo "${file//[^0-9]/}" && found=0; fi
    done 2>/dev/null
    return $found
}

# --- packages -------------------------------------------------------------------------------------

# Call `apt-get install` without questions, and without starting the services of packages.
install_packages() {
    policy=${IMGBUILD_POLICY_RC:-/usr/sbin/policy-rc.d} # invoke-rc.d(8)
    if [[ ! -e $policy ]]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "$@" >&2
}

# Install what is missing from one newer suite of Debian, each package by name, so that nothing else
# moves to it. Sources and lists are in a folder of their own: the machine's apt stays as it is.
install_from() {
    local suite=$1 folder=$2 key=/usr/share/keyrings/debian-archive-keyring.gpg source changed
    local -a packages=("${missing[@]/%//$1}" iptables) # dockerd calls it; not all depend on it
    local -a apt=(-o Dir::Etc::SourceList="$folder/all.list" -o Dir::Etc::SourceParts=-
        -o Dir::State::Lists="$folder/lists" -o Dir::Cache="$folder" -o Acquire::Languages=none
        -o APT::Default-Release="/^$VERSION_CODENAME/")
    mkdir -p "$folder"/{lists,archives}/partial
    # The newest suite's Release file may be past its date on a mirror; its signature still counts.
    for source in "${mirrors[@]}" "${mirrors[0]% *} $suite"; do
        echo "deb [signed-by=$key check-valid-until=no] $source main"
    done >"$folder/all.list"
    { apt-get "${apt[@]}" update -q --error-on=any && apt-get "${apt[@]}" install --simulate \
        --no-install-recommends "${packages[@]}"; } >"$folder/log" 2>&1 || return
    changed=$(sed -nE 's/^(Inst ([^ ]+) \[|Remv ([^ ]+) ).*/\2\3/p' "$folder/log" |
        grep -vxE 'docker.io|docker-cli|docker-buildx|containerd|runc') || true
    [[ ! $changed ]] || { echo "It would change ${changed//$'\n'/, }" >>"$folder/log" && return 1; }
    install_packages "${apt[@]}" "${packages[@]}"
}

install_missing() {
    local mirrors suite folder ID ID_LIKE VERSION_CODENAME
    [[ $(id -u) == 0 ]] || fail "${missing[*]} must be installed: sudo $0"
    command -v apt-get >/dev/null || fail "install Docker Engine 24 or later with its buildx plugin"
    # shellcheck source=/dev/null
    . /etc/os-release
    apt-get update -q >&2 || true # the broken source of a third party does not matter
    if [[ " $ID ${ID_LIKE:-} " == *" ubuntu "* ]]; then
        install_packages docker.io docker-buildx iptables # docker.io has the client there
        return
    fi
    # shellcheck disable=SC2016 # variables of apt-get
    mapfile -t mirrors < <(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' \
        'Created-By: Packages' 'Component: main' |
        grep -E " $VERSION_CODENAME(-security)?$" | sort -uk2)
    ((${#mirrors[@]})) || fail "apt has no source of Debian's $VERSION_CODENAME, which would tell" \
        "where newer suites are. Install Docker Engine with its buildx plugin, or set DOCKER_HOST"
    folder=$(mktemp -d) && chmod 755 "$folder" # apt downloads as the user _apt
    for suite in sid forky trixie; do
        say "Installing ${missing[*]} from Debian's $suite"
        if install_from "$suite" "$folder/$suite"; then rm -rf "$folder" && return; fi
        tail -n 2 "$folder/$suite/log" >&2
    done
    fail "no suite of Debian has ${missing[*]} for this machine, see above. Install Docker Engine" \
        "with its buildx plugin, or set DOCKER_HOST to another engine"
}

# --- the engine -----------------------------------------------------------------------------------

# A pidfile that a kill left behind may name any process; the data folder on its command line tells.
pid() { processes "^[^ ]*dockerd .*--data-root=$state/docker( |$)"; }

# End what a dead engine leaves: its containerd, shims with their containers, and mounts, of which
# dockerd makes one of its data folder on itself; nothing can be removed below them.
kill_leftovers() {
    local left
    for left in $(processes "^[^ ]*containerd(-shim[^ ]*)? .*$run/docker/"); do
        # shellcheck disable=SC2046 # a word for each child
        kill -KILL $(cat "/proc/$left/task/$left/children") "$left" || true
    done 2>/dev/null
    for left in $(findmnt -rno TARGET); do
        if [[ $left == "$state"/* || $left == "$run"/* ]]; then umount --lazy "$left" || true; fi
    done 2>/dev/null
    rm -f "$run/docker.pid" "$run/docker.sock"
}

launch() {
    [[ $(id -u) == 0 ]] || fail "no Docker engine answers this user. Start yours and join the group of its" \
        "socket (sudo usermod -aG docker ${USER:-NAME}, then log in again), or start one: sudo $0"
    local -a command=(dockerd --data-root="$state/docker" --exec-root="$run/docker" --host="$own"
        --pidfile="$run/docker.pid" --config-file="$state/daemon.json" # not /etc/docker/daemon.json
        --containerd-namespace="$name" --containerd-plugins-namespace="$name-plugins")
    if [[ ! $store && ${options[*]} != *--bridge* ]] && processes '^[^ ]*dockerd ' >/dev/null; then
        fail "another Docker engine runs here, and a second one would change its network rules." \
            "Use it: set DOCKER_HOST, or engine.host in imgbuild.local.yaml. Or give this one" \
            "IMGBUILD_DOCKERD_OPTIONS='--bridge=NAME --iptables=false --ip6tables=false'"
    fi
    kill_leftovers # dockerd refuses to start beside them
    mkdir -p "$state" "$run"
    echo '{}' >"$state/daemon.json"
    if [[ $store ]]; then
        printf '{"features": {"containerd-snapshotter": %s}}\n' \
            "$([[ $store == containerd ]] && echo true || echo false)" >"$state/daemon.json"
        command=(unshare --net "${command[@]}" --iptables=false --ip6tables=false)
    fi
    (cd / && exec setsid "${command[@]}" "${options[@]}" </dev/null &>"$state/docker.log") &
    for _ in {1..300}; do
        if answers "$own"; then say "Started an engine, apart from any other: $own" && return; fi
        kill -0 $! 2>/dev/null || break
        sleep 0.2
    done
    fail "the engine does not answer. $state/docker.log ends: $(tail -n 8 "$state/docker.log")"
}

# Print the address that the user gave to imgbuild or to the Docker client, if any but the default.
named_host() {
    local host
    host=$(sed -n 's/^  host: *//p' "$settings")
    host=${host:-$(docker context inspect --format '{{.Endpoints.docker.Host}}')}
    host=${host:-$DOCKER_HOST}
    [[ $store || $host == unix:///var/run/docker.sock ]] || echo "$host"
} 2>/dev/null

start() {
    local host missing=()
    host=$(set +eu && named_host)
    command -v docker >/dev/null || missing+=(docker-cli)
    docker buildx version &>/dev/null || missing+=(docker-buildx)
    # Debian 12 has 20.10, whose BuildKit is too old.
    if [[ ${host:-$own} == "$own" && ! $(dockerd --version 2>&1) =~ version\ (2[3-9]|[3-9]) ]] &&
        ! answers && ! answers "$own"; then
        missing=(docker.io docker-cli docker-buildx)
    fi
    ((!${#missing[@]})) || install_missing
    if [[ ! $store && $host != "$own" ]] && { [[ $host ]] || answers; }; then
        answers "$host" || fail "the engine at $host does not answer. Start it, or take its" \
            "address out of imgbuild.local.yaml, DOCKER_HOST or the Docker context"
        own=${host:-unix:///var/run/docker.sock}
    elif ! answers "$own"; then
        launch
    fi
    echo "$own"
}

stop() {
    local dockerd
    if dockerd=$(pid); then
        kill "$dockerd"
        timeout 30 tail --pid="$dockerd" -f /dev/null || kill -KILL "$dockerd" || true
        say "Stopped the engine at $own"
    fi
    kill_leftovers
    [[ ! $store ]] || rm -rf "$state" "$run"
}

$action
