"""Run suites in an image without an engine: in a chroot of its files, with this machine's driver.

`python3 FOLDER/chroot_run.py` in a folder that `bundle.py` made; it needs root, util-linux and
Python 3.10. All that it mounts only it and its children see, and it goes with them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gpu_report
from chroot_docker import FIRST

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).resolve().parent
WHERE = "IMGBUILD_CHROOT"
LIBRARY = "libcuda.so.1"
#: Where drivers lie, if `ldconfig -p` does not say it.
FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib")
#: The driver's own among the libraries of its folder, which may hold the machine's libc, too.
DRIVER = re.compile(r"lib(cuda|cudadebugger|nvidia-[\w-]+|dxcore|d3d12)\.so(\.[\d.]+)?")
#: In the image: the folder by which GPU images expect a driver, and the loader's settings.
LENT, SETTINGS = "usr/local/nvidia/lib64", "etc/ld.so.conf.d/imgbuild-driver.conf"


def main(words: Sequence[str]) -> int:
    """Return 0 if all suites passed, and the one that needs a GPU had one."""
    options = parsed(words)
    if os.geteuid() != 0:
        sys.exit("A chroot needs root: run this with sudo.")
    if os.environ.get(WHERE) != str(HERE):
        # Nothing that is mounted from here on is seen by others, or left when this ends.
        os.environ[WHERE] = str(HERE)
        private = ("unshare", "--mount", "--propagation", "private")
        os.execvp(private[0], [*private, sys.executable, str(HERE / "chroot_run.py"), *words])
    rootfs = unpacked()
    for name in ("proc", "sys", "dev", "etc/hosts"):  # an engine writes names of hosts, too
        mount("--rbind", f"/{name}", str(rootfs / name))
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(rootfs / "tmp"))
    folder = options.driver or driver_folder()
    lend(folder, rootfs)
    no_gpu = f"there is no {LIBRARY} on this machine" if folder is None else None
    asked = inside("python", "-c", (HERE / "image/programs/driver.py").read_text(encoding="utf-8"))
    machine = gpu_report.machine(json.loads(asked), "none: a chroot")
    report = tested(options.suites or gpu_report.SUITES, no_gpu)
    print(gpu_report.write(options.report, machine, [report]))
    faults = gpu_report.faults([report])
    print("\n".join(faults), file=sys.stderr)
    return 1 if faults else 0


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="by default those for GPUs")
    parser.add_argument("--report", type=Path, default=HERE / "report", metavar="DIR")
    parser.add_argument("--driver", type=Path, metavar="DIR", help=f"the folder with {LIBRARY}")
    options = parser.parse_args(words)
    known = {file.stem.removeprefix("test_") for file in (HERE / "image").glob("test_*.py")}
    if unknown := {*options.suites} - known:
        parser.error(f"no suite {', '.join(unknown)}. There are: {', '.join(sorted(known))}.")
    if options.driver and not (options.driver / LIBRARY).exists():
        parser.error(f"--driver {options.driver}: {LIBRARY} is not there.")
    return options


def unpacked() -> Path:
    """Return the root file system; what an earlier run unpacked is used again."""
    rootfs, half = HERE / "rootfs", HERE / "rootfs.part"
    if not rootfs.is_dir():
        subprocess.run(["rm", "-rf", str(half)], check=True)
        half.mkdir()
        command = ["tar", "--extract", "--numeric-owner", "--preserve-permissions"]
        subprocess.run(
            [*command, "--file", str(HERE / "rootfs.tar.gz"), "-C", str(half)], check=True
        )
        half.rename(rootfs)
    return rootfs


def driver_folder() -> Path | None:
    """Return the folder with the driver's library, None where this machine has none."""
    program = "ldconfig" if os.access("/sbin/ldconfig", os.X_OK) else "true"
    known = subprocess.run([f"/sbin/{program}", "-p"], capture_output=True, text=True, check=False)
    found = re.findall(
        rf"^\s*{re.escape(LIBRARY)} \(.*x86-64.*\) => (.*)", known.stdout, re.MULTILINE
    )
    folders = [Path(file).parent for file in found] + list(map(Path, FOLDERS))
    return next((folder for folder in folders if (folder / LIBRARY).exists()), None)


def lend(folder: Path | None, rootfs: Path) -> None:
    """Mount each of the driver's libraries into the image, and let its loader find them.

    Without a driver, what an earlier run left in the loader's settings goes.
    """
    settings = rootfs / SETTINGS
    settings.unlink(missing_ok=True)
    if folder is not None:
        lent = rootfs / LENT
        lent.mkdir(parents=True, exist_ok=True)
        mount("-t", "tmpfs", "tmpfs", str(lent))
        for file in sorted(folder.iterdir()):
            if DRIVER.fullmatch(file.name) and file.is_file():
                (lent / file.name).touch()
                mount("--bind", str(file.resolve()), str(lent / file.name))
        settings.write_text(f"/{LENT}\n", encoding="utf-8")
    inside("ldconfig")


def inside(*command: str) -> str:
    """Return what a command prints in the image."""
    words = [sys.executable, str(HERE / "chroot_docker.py"), "exec", FIRST, *command]
    return subprocess.check_output(words, text=True)


def tested(suites: Sequence[str], no_gpu: str | None) -> dict[str, Any]:
    """Return the report of one pytest run of these suites."""
    files = [str(HERE / "image" / f"test_{suite}.py") for suite in suites]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as results:
        docker = Path(folder) / "docker"
        text = f'#!/bin/sh\nexec "{sys.executable}" "{HERE}/chroot_docker.py" "$@"\n'
        docker.write_text(text, encoding="utf-8")
        docker.chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(HERE / "python"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "IMGBUILD_RESULTS": str(results.fileno()),  # tests/image/result_stream.py
        }
        command = [
            *(sys.executable, "-m", "pytest", "-c", os.devnull, "-q", "-rs", "--tb=short"),
            *("-p", "no:cacheprovider", "-p", "testinfra.plugin", f"--rootdir={HERE}"),
            *(f"--hosts=docker://{FIRST}", f"--expect={HERE / 'expect.json'}"),
            "--gpus-offered" if no_gpu is None else f"--no-gpu={no_gpu}",
        ]
        number = results.fileno()
        subprocess.run([*command, *files], env=environment, pass_fds=(number,), check=False)
        results.seek(0)
        events = [json.loads(line) for line in results]
    checks = [event for event in events if "outcome" in event]
    expected = json.loads((HERE / "expect.json").read_text(encoding="utf-8"))
    return {
        "image": expected["name"],
        "image_id": json.loads((HERE / "image.json").read_text(encoding="utf-8"))[0]["Id"],
        "suites": [
            gpu_report.suite_result(suite, [one for one in checks if one["suite"] == suite])
            for suite in suites
        ],
    }


def mount(*words: str) -> None:
    """Mount for this process and its children, and nobody else."""
    subprocess.run(["mount", *words], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
