#!/bin/sh
# NAME:  Miniconda3
# VER:   {version}
# A stand-in for tests: it installs CPython and a small program `conda`, as Miniconda does.
# As the real one, it needs bzip2, and to be called by a name that ends in .sh.
unset LD_LIBRARY_PATH
if ! echo "$0" | grep '\.sh$' > /dev/null; then
    echo 'Please run using "bash" or "sh", but not "." or "source"' >&2
    exit 1
fi
prefix=$HOME/miniconda3
batch=0
force=0
while getopts "bfhp:sut" option; do
    case $option in
        h) echo "usage: $0 [-b] [-f] [-p PREFIX] (stand-in for Miniconda3 {version})"; exit 2 ;;
        b) batch=1 ;;
        f) force=1 ;;
        p) prefix=$OPTARG ;;
        s | u | t) ;;
        *) exit 2 ;;
    esac
done
if [ "$batch" = 0 ]; then
    echo "This stand-in installs without asking only: use -b." >&2
    exit 2
fi
case $prefix in *" "*) echo "ERROR: Cannot install into directories with spaces" >&2; exit 1 ;; esac
if [ "$force" = 0 ] && [ -e "$prefix" ]; then
    echo "ERROR: File or directory already exists: '$prefix'" >&2
    exit 1
fi
here=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
mkdir -p "$prefix/pkgs" && prefix=$(cd "$prefix" && pwd) || exit 1
echo "PREFIX=$prefix"
tail -n +{lines} "$here" > "$prefix/pkgs/root.tar.bz2" || exit 1
if [ "$(md5sum < "$prefix/pkgs/root.tar.bz2" | cut -d' ' -f1)" != {md5} ]; then
    echo "ERROR: md5sum mismatch of the archive in this installer" >&2
    exit 1
fi
bunzip2 -c "$prefix/pkgs/root.tar.bz2" | tar -xf - -C "$prefix" --no-same-owner
if [ ! -x "$prefix/bin/python" ]; then
    echo "ERROR: cannot extract the archive (is bzip2 installed?)" >&2
    exit 1
fi
rm "$prefix/pkgs/root.tar.bz2"
while read -r file; do
    sed -i "s|{placeholder}|$prefix|g" "$prefix/$file"
done < "$prefix/pkgs/has_prefix"
echo "installation finished."
exit 0
