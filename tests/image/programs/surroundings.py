"""Print what a process finds around it: variables, programs, locale, time zone, home folder.

`environment` is that of this process, which `docker exec` started; of the container's own, whose
program is the argument; and of shells that either starts. `programs` are the files that shells find
by the names given after it.
"""

import json
import locale
import os
import sys
import tempfile
import time

import commands

NON_ASCII = "gr\u00fcn \u2713"
NOTHING = "login shell without variables"
SHELLS = {
    "sh": ["sh", "-c"],
    "bash": ["bash", "-c"],
    "login shell": ["bash", "-lc"],
    "login shell of sh": ["sh", "-lc"],
    # su, ssh and cron start from nothing.
    NOTHING: ["env", "-i", "HOME=/tmp", "bash", "-lc"],
}
MIDWINTER = 1577836800  # 2020-01-01 00:00 in UTC


def started(name):
    """Return the variables of the container's own program: the first process that is called so."""
    for number in sorted((n for n in os.listdir("/proc") if n.isdigit()), key=int):
        try:
            with open("/proc/{}/cmdline".format(number), "rb") as stream:
                words = stream.read().split(b"\0")
            if name.encode() in names_in(words):
                with open("/proc/{}/environ".format(number), "rb") as stream:
                    return variables(stream.read())
        except FileNotFoundError:  # it has ended
            continue
    return {}


def names_in(words):
    """Return the words of a process that can be its name: an emulator comes first, or nothing.

    Depending on its registration, an emulator is followed by the program's path, or not.
    """
    return words[1:3] if b"qemu" in words[0] else words[:1]


def variables(block):
    pairs = (entry.partition(b"=") for entry in block.split(b"\0") if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def output(command):
    return commands.output(command, merged=True)


def found(shell, names):
    """Return the files that this shell finds, by name."""
    script = "for name in {}; do command -v $name || echo; done".format(" ".join(names))
    return dict(zip(names, output(shell + [script]).decode().splitlines()))


def written():
    """Return a text that went through a file of the default encoding, and its bytes.

    `fault` is why it could not.
    """
    try:
        return through_a_file()
    except UnicodeError as error:
        return {"fault": str(error)}


def through_a_file():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, NON_ASCII)
        with open(path, "w") as stream:
            stream.write(NON_ASCII)
        with open(path) as stream, open(path, "rb") as raw:
            return {
                "text": stream.read(),
                "bytes": raw.read().hex(),
                "names": os.listdir(folder),
                "fault": None,
            }


def hour_in(zone):
    """Return the hour of midnight in UTC, in January, in another time zone."""
    os.environ["TZ"] = zone
    time.tzset()
    return time.localtime(MIDWINTER).tm_hour


def around(main, names):
    return {
        "environment": {
            "docker run": started(main),
            "docker exec": dict(os.environ),
            "sh": variables(output(["sh", "-c", "env -0"])),
            "bash": variables(output(["bash", "-c", "env -0"])),
            NOTHING: variables(output(SHELLS[NOTHING] + ["env -0"])),
        },
        "programs": {shell: found(command, names) for shell, command in SHELLS.items()},
        "encodings": [
            sys.stdout.encoding, sys.getfilesystemencoding(), locale.getpreferredencoding(False)
        ],
        "written": written(),
        "date": output(["date", "+%z %Z"]).decode().strip(),
        "home": os.path.expanduser("~"),
        "hours": {zone: hour_in(zone) for zone in ("UTC", "CET-1CEST", "Europe/Berlin")},
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(around(sys.argv[1], sys.argv[2:])))
