#!/bin/sh
# Install the packages that apt-download left in a folder, without network, and leave no logs and caches:
#
#     apt-install-files DIR
set -eu
set -- "$1"/*.deb
if [ ! -e "$1" ]; then exit; fi # the image has all of them
work=$(mktemp -d)
mkdir "$work/lists" "$work/archives"
export DEBIAN_FRONTEND=noninteractive PYTHONHASHSEED=0
# No sources: they are the image's, and cannot be reached.
apt-get -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::Lists=$work/lists" \
    -o "Dir::Cache::Archives=$work/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
    -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-unsafe-io \
    install -y --no-install-recommends "$@"
# As images/files/apt/install: what differs from build to build, and host keys.
rm -rf "$work" /var/tmp/* /etc/ssh/ssh_host_*
find /var -xdev -type f -size +0 \( -path '/var/cache/apt/*.bin' -o -path '/var/cache/debconf/*-old' -o -name aux-cache \
    -o -path '/var/lib/dpkg/*-old' -o -path '/var/log/*' \) -exec truncate --size 0 {} +
