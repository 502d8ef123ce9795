"""Find files with a text of a kind: the argument is JSON, a list of kinds.

A kind has a name, a literal that its texts have, the pattern of such a text, and the folders to
look in. Grep finds the few files with a literal, and only those are read here. Left out are files of
more than 256 KiB, bytecode and headers, which have none; /tmp, where the suites themselves lie; and
other file systems. Prints the files by the name of the kind.
"""

import json
import os
import re
import subprocess
import sys

FIND = ("-xdev", "-path", "/tmp", "-prune", "-o", "-type", "f", "-size", "-257k")
FIND += ("!", "-name", "*.pyc", "!", "-name", "*.h", "-print0")


def with_literals(folders, literals):
    """Return the files that have one of the literals; what is not there is not looked in."""
    there = [folder for folder in folders if os.path.exists(folder)]
    if not there:
        return []
    options = [word for literal in literals for word in ("-e", literal)]
    grep = ["xargs", "-0", "grep", "-laZF"] + options + ["--", "/dev/null"]
    environment, pipe = dict(os.environ, LC_ALL="C"), subprocess.PIPE
    with subprocess.Popen(("find",) + tuple(there) + FIND, stdout=pipe) as find:
        with subprocess.Popen(grep, stdin=find.stdout, stdout=pipe, env=environment) as ran:
            names = ran.stdout.read().split(b"\0")
    if find.returncode != 0 or ran.returncode not in (0, 123):  # 123: a grep found nothing
        sys.exit("find ended with {}, grep with {}".format(find.returncode, ran.returncode))
    return [os.fsdecode(name) for name in names if name]


def matching(kinds):
    result = {}
    for folders in sorted({tuple(kind["folders"]) for kind in kinds}):
        wanted = [kind for kind in kinds if tuple(kind["folders"]) == folders]
        for path in with_literals(folders, [kind["literal"] for kind in wanted]):
            with open(path, encoding="latin-1", newline="") as stream:
                text = stream.read()
            for kind in wanted:
                if re.search(kind["pattern"], text):
                    result.setdefault(kind["name"], []).append(path)
    return result


if __name__ == "__main__":
    print(json.dumps(matching(json.loads(sys.argv[1]))))
