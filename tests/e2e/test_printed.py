"""What `imgbuild build` prints at its end, pasted in an empty folder."""

from dataclasses import replace
from pathlib import Path

from imgbuild.cli.usage import usage_lines
from imgbuild.matrix.load import load_matrix
from imgbuild.matrix.selection import find_image
from support.checkout import Bases, Checkout
from support.tensorboard_page import answer
from support.waiting import wait_for

NAME = "tf-2.2-cpu-debian"


def test_each_command_works_in_an_empty_folder(
    base: Bases, checkout: Checkout, tmp_path: Path, mark: str
) -> None:
    tag = base(NAME).tag
    image = find_image(load_matrix(checkout.project.matrix), NAME)
    here = replace(checkout, root=tmp_path)
    lines = usage_lines([image], checkout.host).replace(image.tags[0], tag).replace("\\\n", "")
    version, ranks, shown = (one for one in lines.splitlines() if one.startswith("  docker"))
    assert here.typed(["bash", "-c", version]).stdout.strip() == "2.2.3"
    printed = here.typed(["bash", "-c", ranks]).stdout
    assert {"0 2", "1 2"} <= {*printed.splitlines()}
    shown = shown.replace(" run --rm", f" run --rm --detach --name {mark}")
    here.typed(["bash", "-c", shown.replace(":6006:6006", "::6006")])
    address = checkout.printed("port", mark, "6006").split()[0]
    assert address.startswith("127.0.0.1:")
    wait_for(lambda: answer(f"http://{address}/data/runs") == [], what="TensorBoard")
    assert [*tmp_path.iterdir()] == []
    lost = here.typed(["bash", "-c", version.replace(tag, "imgbuild-e2e/nobody:1")], 125)
    assert "No such image" in lost.stderr
