"""Buildah builds a committed Dockerfile, without Docker; the image passes suites in an engine.

Buildah is Debian's unstable one, in a system of its own, since Debian 12's is too old.
"""

import os
import subprocess
import uuid
from pathlib import Path

import pytest

from imgbuild.build.context import BuildOptions, open_context
from imgbuild.build.targets import image_target
from imgbuild.engine.client import Engine
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.selection import find_image
from support.checkout import Checkout

#: With the system's own Python: it needs no interpreter of this machine.
NAME = "tf-2.16-cpu-debian"
#: What a container without more rights may have.
LIMITS = "--ulimit nofile=20000:20000 --ulimit nproc=90000:90000"
#: Mounts end with the namespace. Buildah's chroots need a root that is a mount.
_ENTER = """\
set -e
mount --bind {root} {root} && cd {root}
mount -t proc proc proc && mount --rbind /dev dev
for one in {mounts}; do
    mkdir -p ".$one" && mount --bind "$one" ".$one"
done
cp --dereference /etc/resolv.conf etc/resolv.conf
exec chroot . /bin/sh -ec "$1"
"""
_BUILD = """\
export HOME=/root TMPDIR=/var/tmp
id=$(buildah pull --quiet oci:{layout})
buildah tag "$id" localhost/base:1
mkdir -p /empty
buildah bud --quiet --layers=false --isolation chroot {limits} --tag {tag} \\
    --build-context base=container-image://localhost/base:1 --build-context uv={uv} \\
    --build-context downloads=/empty --build-context offline=/empty {secrets} \\
    --file {dockerfile} {context}
buildah push --quiet {tag} docker-archive:/image.tar:{tag}
"""


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="a chroot needs root")
def test_buildah_builds_a_dockerfile(checkout: Checkout, engine: Engine, tmp_path: Path) -> None:
    root, tag = tmp_path / "sid", f"localhost/imgbuild-e2e-buildah:{uuid.uuid4().hex[:12]}"
    packages = "--include=buildah,crun,ca-certificates,netavark"
    expired = 'Acquire::Check-Valid-Until "false"'  # on a mirror; the signature still counts
    system = ["mmdebstrap", "--variant=apt", packages, f"--aptopt={expired}", "sid", str(root)]
    subprocess.run(system, check=True, capture_output=True)
    matrix = load_matrix(checkout.project.matrix)
    image = find_image(matrix, NAME)
    with open_context(checkout.project, (image,), BuildOptions(), lambda _: None) as context:
        (item,) = context.plan(test=False)
        target = image_target(item, context.inputs, {}, context.project, None)
        layout = context.inputs.bases[image.os_name].layout
        secrets = context.inputs.secrets
    assert layout
    build = _BUILD.format(
        layout=layout,
        limits=LIMITS,
        tag=tag,
        uv=target.contexts["uv"],
        secrets=" ".join(f"--secret id={name},src={path}" for name, path in secrets.items()),
        dockerfile=target.dockerfile,
        context=target.context,
    )
    needed = {layout, Path(target.contexts["uv"]), target.context}
    places = [*map(str, needed), *{str(path.parent) for path in secrets.values()}]
    enter = _ENTER.format(root=root, mounts=" ".join(places))
    command = ["unshare", "--mount", "sh", "-c", enter, "sh", build]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    try:
        checkout.printed("load", "--input", str(root / "image.tar"))
        suites = ("--suite", "tensorflow", "--suite", "horovod")
        tested = checkout.run("test", tag, *suites)
        assert "passed" in tested.stdout
    finally:
        engine.untag(tag)
