"""Faults in the inputs of a real image: nothing gets a name. Those of builds: test_build_faults."""

from imgbuild.engine.client import Engine
from support.checkout import COPY_REPOSITORY, Checkout
from support.releases import release_of

#: The quickest image to build.
TF = "1.10"
NAME = "tf-1.10-cpu-debian"


def test_a_wrong_sha256_stops_the_build(copy: Checkout, engine: Engine) -> None:
    right = "2b1599c701fafdb7deba83a19306fb9b9166ffce0efc0a8aa03008761b428187"
    copy.edit("matrix.yaml", right, "0" * 64)
    said = copy.run("build", "--tf", TF, code=1).stderr
    assert f"Building {NAME} failed in the step '[horovod-source " in said
    assert "sha256" in said
    assert str(copy.state / "imgbuild" / "logs") in said
    assert engine.find_named(COPY_REPOSITORY) == []


def test_a_wrong_hash_in_a_lock_stops_the_build(copy: Checkout, engine: Engine) -> None:
    lock = copy.root / "images" / "locks" / f"tf-{release_of(TF)}-py3.6-cpu.txt"
    lines = lock.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("absl-py=="))
    end = next(i for i in range(start + 1, len(lines)) if not lines[i].startswith("    "))
    lines[start:end] = [lines[start], "    --hash=sha256:" + "0" * 64]
    lock.write_text("\n".join(lines) + "\n")
    assert "imgbuild render" in copy.run("build", "--tf", TF, code=2).stderr
    copy.render()
    assert "absl-py" in copy.run("build", "--tf", TF, code=1).stderr
    assert engine.find_named(COPY_REPOSITORY) == []


def test_only_what_changed_is_rebuilt_and_the_plan_says_why(copy: Checkout) -> None:
    for path in (copy.root / "tests" / "image").glob("test_*.py"):  # two suites are enough here
        if path.stem not in {"test_pins", "test_tensorflow"}:
            path.unlink()
    copy.run("build", "--tf", TF)
    assert copy.plan(TF)["action"] == "nothing"
    copy.edit("images/files/horovod/check_compiler.py", '"""Stop', '"""Halt')
    plan = copy.plan(TF)
    assert plan["action"] == "build"
    assert plan["reason"].startswith("changed: files/horovod ")
