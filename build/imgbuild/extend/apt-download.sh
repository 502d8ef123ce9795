#!/bin/sh
# Download packages of the archive, and what they depend on, for an image that is not trusted:
#
#     apt-download STATUS DIR PACKAGE[=VERSION]...
#
# It runs in a base image of the family, whose archive and keys count. Of the other image it reads one file as data,
# STATUS, the list of the packages that are installed there. Beside this script: apt-install. Secrets as in that script.
set -eu
status=$1
out=$2
shift 2
limit=67108864
if [ ! -f "$status" ] || [ "$(wc -c < "$status")" -gt "$limit" ]; then
    echo "/var/lib/dpkg/status of the image is not a file of at most 64 MiB." >&2
    exit 1
fi
work=$(mktemp -d)
mkdir -p "$out"
cp "$status" "$work/status"
echo "Dir::State::status \"$work/status\";" > "$work/apt.conf"
export APT_CONFIG="$work/apt.conf"
sh "${0%/*}/apt-install" --plan "$work/plan" "$@"

# Nothing else runs here, so apt needs no other user, who could not read the secrets.
set -- -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=60 -o Acquire::https::Timeout=60
if [ -s /run/secrets/netrc ]; then set -- "$@" -o Dir::Etc::netrc=/run/secrets/netrc; fi
if [ -s /run/secrets/ca ]; then set -- "$@" -o Acquire::https::CAInfo=/run/secrets/ca; fi
# Lines of --print-uris: 'URL' NAME SIZE SHA256:DIGEST
while read -r url name _ digest; do
    url=${url#\'}
    case $digest in SHA256:*) ;; *) echo "The archive has no sha256 of $name." >&2; exit 1 ;; esac
    /usr/lib/apt/apt-helper -q "$@" download-file "${url%\'}" "$out/$name" "$digest"
done < "$work/plan/uris"
rm -rf "$work"
