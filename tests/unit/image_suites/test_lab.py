"""What a lab lends to its containers."""

from __future__ import annotations

import io
import tarfile

from lab import STUB, placed


def test_a_file_is_placed_below_folders_that_need_not_be_there() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("libcuda.so.1")
        member.size, member.mode = 4, 0o644
        archive.addfile(member, io.BytesIO(b"stub"))
    with tarfile.open(fileobj=io.BytesIO(placed(buffer.getvalue(), STUB))) as made:
        (found,) = made.getmembers()
        content = made.extractfile(found)
        assert found.name == "usr/local/nvidia/lib64/libcuda.so.1"
        assert content is not None
        assert content.read() == b"stub"
