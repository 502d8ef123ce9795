"""A small disk that can be full at once and have room again: a tmpfs that shrinks and grows."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SmallDisk:
    """A tmpfs of ``size`` bytes: full when it is shrunk, and then given its room back."""

    folder: Path
    size: int

    def fill(self, left: int = 0) -> None:
        """Let no more than ``left`` bytes be free; the kernel counts in pages."""
        for _ in range(20):  # what is written meanwhile makes the kernel refuse
            status = os.statvfs(self.folder)
            if self._resize((status.f_blocks - status.f_bfree) * status.f_frsize + left):
                return
        raise AssertionError("the tmpfs could not be shrunk")

    def empty(self) -> None:
        assert self._resize(self.size)

    def _resize(self, size: int) -> bool:
        # A size of 0 would be no limit.
        command = ["mount", "-o", f"remount,size={max(size, 4096)}", str(self.folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[SmallDisk]:
    """Mount a tmpfs of ``size`` bytes at ``folder``; it is gone afterwards."""
    assert os.geteuid() == 0, "run these tests as root: they mount a tmpfs"
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={size},mode=0755", "imgbuild-e2e", str(folder)]
    subprocess.run(["mount", *options], check=True)
    try:
        yield SmallDisk(folder, size)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)
