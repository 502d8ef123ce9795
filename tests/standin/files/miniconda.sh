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
if [ "$1 $2" != "-b -p" ]; then
    echo "This stand-in installs without asking only: use -b -p PREFIX." >&2
    exit 2
fi
prefix=$3
if [ -e "$prefix" ]; then
    echo "ERROR: File or directory already exists: '$prefix'" >&2
    exit 1
fi
mkdir -p "$prefix/pkgs" || exit 1
echo "PREFIX=$prefix"
tail -n +{lines} "$0" > "$prefix/pkgs/root.tar.bz2" || exit 1
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
