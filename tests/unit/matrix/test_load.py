"""A wrong matrix.yaml is refused, with the place and the allowed values; so does its schema."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

from imgbuild.core.project import Project
from imgbuild.core.yaml_file import read_document
from imgbuild.matrix import schema
from imgbuild.matrix.images import all_images
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.schema import SCHEMA_NAME, schema_text
from support.releases import release_of

Edited = Callable[..., Path]
Refusal = Callable[[Path], str]

OPEN_MPI = "363c8a1258d12df28657e9b13bfe41e30fc129a4cfb89fcf53ff68bbe1bd65b3"
DEFAULT = 'defaults: {tensorflow: "2.2"'
#: The beginning of a row without Horovod.
WITHOUT = "horovod: {version: none, why: "
ALIASES = "AzureML-TensorFlow-2.3-GPU, TensorFlow-2.3-GPU"
ROW, OTHER_MPI = "stack: debian, variants: [cpu], horovod:", "mpi: intelmpi-2021.8.0}"


def test_a_row_overrides_its_stack_and_a_stack_its_operating_system(
    edited: Edited, refusal: Refusal
) -> None:
    stack, row = "      nccl: 2.4.8\n", "{tensorflow: 2.0.0, stack: ubuntu, variants: [cpu, gpu],"
    path = edited(stack, f"{stack}      git: 2.17.8\n")
    path.write_text(path.read_text().replace(row, f"{row} git: 2.17.9,"))
    found = {image.name: image.version_of("git") for image in all_images(load_matrix(path))}
    assert found["tf-1.13-cpu-ubuntu"] == found["tf-2.1-gpu-ubuntu"] == "2.17.8"
    assert found["tf-2.0-cpu-ubuntu"] == "2.17.9"
    # The fault is where the pin stands that holds.
    path = edited(stack, f"{stack}      mpi: openmpi-4.1.4\n")
    line = path.read_text().splitlines().index("      mpi: openmpi-4.1.4") + 1
    assert f"matrix.yaml:{line}:" in refusal(path)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("epoch:", "epohc:", "unknown key 'epohc'; allowed: accepted, aliases, build_req"),
        ("repository: i", "repository: a/b\nrepository: i", "key 'repository' is already set on"),
        ("git: 2.39.5", "git: latest", "'latest' is not a version"),
        (WITHOUT, f"mpi: openmpi-4.1.4\n    {WITHOUT}", "remove `mpi`"),
        ("  2.3.0:\n", "  2.03.0:\n", "'2.03.0' is not a release of three numbers"),
        ("      git: 2.39.5\n", "", "pin 'git' is missing; set it here or in stacks.debian.pins"),
        ("python: 3.6.15", "python: 3.6.9", "no Python '3.6.9' in the matrix; known: 3.6.2"),
        ("    os: debian-12\n    pins", "    os: beos\n    pins", "no operating system 'beos'"),
        (DEFAULT, DEFAULT.replace("2.2", "2"), "TensorFlow '2' in the matrix; known: 1.10, 1"),
        ("os: [ubuntu-16.04", "os: [beos, ubuntu-16.04", "no operating system 'beos'"),
        ("source: cpython-3.6.15", "source: nowhere", "no source 'nowhere'"),
        ("a227614135d91", "a227614135d9", "is not a sha256; allowed: 64 lower-case"),
        ("  scipy: [scipy]", "  scipy: [numpy]", "numpy is already in the layer numpy"),
        ('0.18.1, cuda: "10.0"', "0.18.1", "pin 'cuda' is missing"),
        ("variants: [cpu]", "variants: [gpu]", "tensorflow.1.10.1.cudnn is missing"),
        ("variants: [cpu]", "variants: [cpu, cpu]", "tf-1.10-cpu-debian is already in entry 11"),
        (f"0.18.2, {OTHER_MPI}", "0.18.2, mpi: openmpi-4.1.4}", "tf-1.15-cpu-debian is already"),
        (
            f"{{tensorflow: {release_of('1.15')}, {ROW} 0.18.2, {OTHER_MPI}",
            f"{{tensorflow: {release_of('1.12')}, {ROW} 0.15.2, {OTHER_MPI}",
            "tf-1.12-cpu-debian-intelmpi is already in entry",
        ),
        (f"{ROW} 0.16.4}}", f"{ROW} 0.16.4, budget: {{gpu: 99}}}}", "a budget for gpu, but"),
        (f"{ROW} 0.16.4}}", f"{ROW} 0.16.4, ran_on: [T4]}}", "`ran_on` is for a row with"),
        ("cpu: tensorflow, gpu", "gpu", "tensorflow.1.10.0.distribution has no cpu"),
        ("from: source", "form: source", "missing key 'from'"),
        ("    os: debian-12\n    packages: [python3", "    packages: [python3", "missing key 'os'"),
        ("[python3=3.11.2-*", "[python3", "'python3' is not a pinned Debian package"),
        ("from: source", "from: tarball", "'tarball' is not allowed; allowed: 'source'"),
        ("epoch: 2026-11-01", "epoch: 2026-13-45", "is not a UTC time from 1980 to 2105"),
        ("tensorflow: <1.12,", "tensorflow: <1.x2,", "'<1.x2' is not a version range"),
        ("    nvidia: ubuntu1804\n", "", "missing key 'nvidia': set NVIDIA's name for ubuntu"),
        ("  nvidia-cuda:\n", "  other:\n", "upstreams.nvidia-cuda needs a url and a keyring"),
        ("keyring: {file: nvidia-7fa2af80.gpg,", "# {", "nvidia-machine-learning needs"),
        ("file: nvidia-7fa2af80.gpg", "file: other.gpg", "no file other.gpg in images/files/k"),
        ("miniconda: 4.5.11", "miniconda: 4.5.1", "no source 'miniconda-4.5.1' in the matrix"),
        ("miniconda: 4.5.11", 'miniconda: "4.5\\n1"', r"'miniconda-4.5\n1' in the matrix"),
        ('{version: "10.1", documented', '{version: "9.2", documented', "no CUDA '9.2'"),
        (f"    sha256: {OPEN_MPI}\n", "", "missing key 'sha256'"),
        ("- https://repo.anaconda", "- http://repo.anaconda", "must use https"),
        ("fact: wheel.cuda", "fact: cuda.colour", "'cuda.colour' is not allowed; allowed"),
        ("    fact: wheel.cuda\n", "", "a rule needs either 'fact' or 'minimum'"),
        (ALIASES, f"{ALIASES}, tensorflow-1.10-cpu", "already names tf-1.10-cpu-ubuntu"),
        (ALIASES, f"{ALIASES}, tf-2.3-cpu-debian", "'tf-2.3-cpu-debian' already names"),
        (ALIASES, f"{ALIASES}, 'a;b'", "'a;b' is not an image's other name"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(
    edited: Edited, refusal: Refusal, old: str, new: str, expected: str
) -> None:
    message = refusal(edited(old, new))
    line = next(line for line in message.splitlines() if expected in line)
    assert re.match(r"matrix\.yaml:\d+:\d+: ", line)


@pytest.mark.parametrize(
    ("edits", "faults"),
    [
        (
            {"git: 2.39.5": "git: latest", "epoch:": "epohc:", 'glibc: "2.36"': 'libc: "2.36"'},
            ["'latest'", "'epohc'", "'epoch'", "'glibc'", "'libc'"],
        ),
        ({f"{ROW} 0.16.4}}": f"{ROW} 0.18.1}}"}, ["breaks the rule horovod-compiler"]),
        ({"variant, stack, flavour]": "variant, stack]"}, ["tf-1.12-cpu-debian-intelmpi would be"]),
    ],
    ids=["schema", "rule", "tags"],
)
def test_all_faults_are_named_at_once(
    edited: Edited, refusal: Refusal, edits: dict[str, str], faults: list[str]
) -> None:
    """Broken references hide none of the others."""
    path = edited("horovod: 0.16.1}", "horovod: 0.16.9}")
    for old, new in edits.items():
        path.write_text(path.read_text().replace(old, new, 1))
    message = refusal(path)
    for fault in (*faults, "no Horovod '0.16.9'"):
        assert fault in message
    assert f"{len(faults) + 1} faults; nothing was done." in message


@pytest.mark.parametrize("section", ["stacks", "tensorflow", "horovod", "mpi", "python", "images"])
@pytest.mark.parametrize("value", ["words", ["a", "b"], {}], ids=["words", "list", "mapping"])
def test_a_section_of_another_kind_is_one_fault_not_a_crash(
    project: Project, tmp_path: Path, refusal: Refusal, section: str, value: object
) -> None:
    document = {**read_document(project.matrix).value, section: value}
    path = tmp_path / "matrix.yaml"
    path.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper))
    assert "matrix.yaml:" in refusal(path)


def test_every_image_that_any_machine_can_build_has_a_budget(project: Project) -> None:
    rows = [row for row in load_matrix(project.matrix).images if row.stack == "debian"]
    assert all(row.budget.get(variant) for row in rows for variant in row.variants)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "matrix.yaml:2:1: not YAML"),
        ("a: b: c", "matrix.yaml:1:5: not YAML"),
        ("", "missing key 'images'"),
        ("- 1", "the document must be a mapping"),
        ("stacks: &a {x: 1}\nsources: *a", "aliases (*name) are not allowed"),
        ("schema: 1\n!x a: 1", "matrix.yaml:2:1: tags (!name) are not allowed"),
        ("schema: &a x\n*a : y", "matrix.yaml:1:9: aliases (*name) are not allowed"),
        ("<<: {a: b}", "unknown key '<<'"),
        ("=: !!x a", "matrix.yaml:1:1: unknown key '='"),
        ("? [a, b]\n: c", "a key must be a plain word"),
        ("a: !!python/object/apply:os.getcwd []", "tags (!name) are not allowed"),
        ("a: " + "[" * 5000 + "]" * 5000, "over 100 nested lists and mappings"),
        ("a:\n" + "- " * 100_000 + "b", "matrix.yaml:2:199: not YAML"),
        ("? " * 100_000 + "a", "matrix.yaml:1:201: not YAML"),
        ("a: '" + "[" * 200 + "'", "unknown key 'a'"),
        ("a: [b,\n  " + "c" * 3000 + "]", "matrix.yaml:2:3: over 2000 characters"),
        ("a" * 1000 + ": 1", "unknown key 'aaa"),
        ("a: [" + "b, " * 100_000 + "]", "larger than 250000 bytes"),
        ("images: [" + "b, " * 70 + "]", "faults, the first 50 are above"),
        ("images: 3", "images must be a list"),
    ],
)
@pytest.mark.usefixtures("no_collection")
def test_what_is_not_a_matrix_is_refused(
    tmp_path: Path, refusal: Refusal, text: str, expected: str
) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(text)
    assert expected in refusal(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, refusal: Refusal) -> None:
    path = tmp_path / "matrix.yaml"
    assert "No such file" in refusal(path)
    path.write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8 text" in refusal(path)


def test_versions_stay_text_and_a_documented_one_need_not_exist(edited: Edited) -> None:
    matrix = load_matrix(edited('glibc: "2.36"', "glibc: 2.40"))
    assert matrix.operating_systems["debian-12"].glibc == "2.40"
    assert load_matrix(edited('documented: "10.0"', 'documented: "8.0"'))


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [(("images", 0), "tensorboard", "2.2.2"), (("horovod", "0.15.2"), "sha256", "abc")],
)
def test_the_committed_schema_refuses_what_the_loader_refuses(
    project: Project, place: tuple[str | int, ...], key: str, value: str
) -> None:
    """As editors read YAML: 1.2 has numbers and booleans, but no times."""
    text = (project.root / "images" / SCHEMA_NAME).read_text()
    assert text == schema_text()
    times = re.compile(r"(?<=: )\d{4}-\d\d-\d\d[^\s,}]*")
    document = yaml.safe_load(times.sub(r'"\g<0>"', project.matrix.read_text()))
    jsonschema.validate(document, json.loads(text))
    section = document
    for part in place:
        section = section[part]
    section[key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json.loads(text))


def test_a_folder_that_another_version_rendered(
    edited: Edited, refusal: Refusal, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is a fault to this version may be none to the one that wrote the schema beside it."""
    path = edited("repository:", "newer_key: 1\nrepository:")
    assert (path.parent / "images" / SCHEMA_NAME).read_text() == schema_text()
    assert "Another version" not in refusal(path)
    monkeypatch.setattr(schema, "schema_text", lambda: "{}")
    text = refusal(path)
    assert "\nAnother version" in text
    assert str(project.root / "build" / "imgbuild") in text
    assert schema.version_note(path.parent / "images") == "", "it has no schema"
