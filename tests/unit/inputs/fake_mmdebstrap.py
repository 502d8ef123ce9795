"""Stands in for mmdebstrap: writes a tiny tar, fails, or hangs, as FAKE_MMDEBSTRAP says."""

import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path


def say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if sys.argv[1] == "--unshare-helper":
    raise SystemExit(1)
behaviour = os.environ["FAKE_MMDEBSTRAP"]
record = Path(os.environ["FAKE_RECORD"])
with record.open("a") as out:
    out.write(" ".join(sys.argv[1:]) + "\n")
say("I: running apt-get update...")
chroot = Path(os.environ["TMPDIR"], "mmdebstrap.chroot")
chroot.mkdir()
if behaviour == "fail":
    say("E: apt-get update failed: Could not connect")
    raise SystemExit(25)
if behaviour == "hang":
    with subprocess.Popen(["sleep", "60"]) as child:  # what apt would be: a process of the group
        record.with_suffix(".pids").write_text(f"{os.getpid()} {child.pid}")
        say("I: hanging")
        time.sleep(60)
if behaviour != "nothing":
    with tarfile.open(sys.argv[-1], "w") as archive:
        info = tarfile.TarInfo("./etc/made-at")
        info.mtime = int(os.environ["SOURCE_DATE_EPOCH"])
        info.uname = os.environ.get("FAKE_ARCHIVE_STATE", "")
        archive.addfile(info)
say("I: success")
