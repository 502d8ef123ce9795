#!/bin/bash
# A stand-in for the installer of Intel MPI {version}: unpacks what lies beside it.
cd "$(dirname "$0")" || exit 1
config=
while [ $# -gt 0 ]; do
    case $1 in
        -s | --silent) config=$2; shift ;;
        --arch=intel64) ;;
        *) echo "install.sh: unknown option $1" >&2; exit 1 ;;
    esac
    shift
done
if [ ! -f "$config" ]; then
    echo "install.sh: this stand-in installs silently only: -s silent.cfg" >&2
    exit 1
fi
setting() { sed -n "s/^$1=//p" "$config" | tail -n 1; }
if [ "$(setting ACCEPT_EULA)" != accept ]; then
    echo "You must accept the EULA: set ACCEPT_EULA=accept in $config." >&2
    exit 1
fi
if ! command -v cpio > /dev/null; then
    echo "Missing critical prerequisite: cpio is not installed." >&2
    exit 1
fi
target=$(setting PSET_INSTALL_DIR)
mkdir -p "$target" && tar -xzf payload.tar.gz -C "$target" --no-same-owner
