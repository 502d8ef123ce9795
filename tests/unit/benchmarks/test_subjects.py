"""What the benchmarks make for themselves: emptied Dockerfiles, changed locks, layers, projects."""

import pytest
from benchmarks.layers import Layer, layer_sizes, new_bytes, unique_bytes
from benchmarks.nothing_to_do import emptied
from benchmarks.one_pin import PACKAGE, VERSIONS, changed_lock
from benchmarks.template_values import values_of

from imgbuild.matrix.images import Image
from imgbuild.project import Project


def test_an_emptied_dockerfile_runs_nothing_and_keeps_its_steps(project: Project) -> None:
    for path in project.dockerfiles.glob("*/Dockerfile"):
        text = path.read_text(encoding="utf-8")
        short = emptied(text)
        for word in ("\nRUN ", "\nCOPY ", "\nFROM ", "--mount", "<<'EOT'", "LABEL "):
            assert short.count(word) == text.count(word), (path, word)
        assert short.count("&& exit 0") == text.count("\nRUN ")


def test_a_changed_lock_differs_in_one_package(project: Project) -> None:
    texts = [path.read_text(encoding="utf-8") for path in project.locks.glob("tf-*-cpu.txt")]
    having = [text for text in texts if f"\n{PACKAGE}==" in text]
    assert having
    for text in having:
        changed = changed_lock(text, VERSIONS[0])
        assert f"{PACKAGE}=={VERSIONS[0].number} \\" in changed
        assert changed.count("==") == text.count("==")
        assert VERSIONS[0].sha256 in changed


def test_a_lock_without_the_package_is_refused() -> None:
    with pytest.raises(ValueError, match=PACKAGE):
        changed_lock("numpy==1.18.5 \\\n    --hash=sha256:0\n", VERSIONS[0])


def test_metadata_makes_no_layer() -> None:
    history = [
        ("imgbuild: root file system", 100),
        ("ENV A=b", 0),
        ("COPY /out/ / # buildkit", 0),
        ("RUN /bin/sh -c true # buildkit", 7),
        ('CMD ["/bin/bash"]', 0),
        ("/bin/sh -c #(nop)  CMD", 0),
    ]
    assert layer_sizes(history) == [100, 0, 7, 0]


def test_shared_layers_are_counted_once_and_moved_ones_once_a_place() -> None:
    base, lock = Layer("b", "b", 100), Layer("l", "b/l", 50)
    moved = Layer("l", "b/x/l", 50)
    images = [[base, lock], [base, Layer("x", "b/x", 1), moved]]
    assert unique_bytes(images, by_content=True) == 151
    assert unique_bytes(images, by_content=False) == 201
    assert new_bytes(images[1], images[0]) == 51


def test_plain_values_are_what_the_templates_read(
    images: dict[str, Image], project: Project
) -> None:
    image = images["tf-1.10-cpu-debian"]
    values = values_of(image, project.locks)
    assert values["image"]["version_of"]["horovod"] == image.version_of("horovod")
    assert values["image"]["mpi"]["origin"] == "apt"
