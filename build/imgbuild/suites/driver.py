"""The driver's library for a container without a GPU: NVIDIA's stub, from the image's builder.

TensorFlow 1.10 to 1.13 for GPUs name libcuda.so.1 among what they need, and cannot be imported
without; later ones open it when they look for GPUs. No image holds it, for it would hide the
driver, so a test run lends it: with the stub they see no GPU and compute on the CPU.
"""

import io
import tarfile

from imgbuild.engine.client import Engine
from imgbuild.errors import ImgbuildError
from imgbuild.files import work_folder
from imgbuild.suites.subject import Export

LIBRARY = "libcuda.so.1"
#: The last folder of LD_LIBRARY_PATH in GPU images, where drivers are mounted.
PLACE = "usr/local/nvidia/lib64"


def lend_stub(engine: Engine, container: str, export: Export | None) -> str | None:
    """Give the container the stub; return why it could not be had, or ``None``.

    It is copied, not mounted: the engine may be on another machine.
    """
    if export is None:
        return "nobody knows the image's builder"
    try:
        with work_folder("stub") as folder:
            export(folder)
            engine.copy_in(container, _archive((folder / LIBRARY).read_bytes()), "/")
    except (ImgbuildError, OSError) as error:
        return str(error)
    return None


def _archive(library: bytes) -> bytes:
    """Return a tar archive with the library at its place."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo(f"{PLACE}/{LIBRARY}")
        member.size, member.mode = len(library), 0o644
        archive.addfile(member, io.BytesIO(library))
    return buffer.getvalue()
