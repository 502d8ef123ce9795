"""Which images `--platform` selects, and what is said where there are none."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace

import pytest

from imgbuild.cli.options import for_platform, select
from imgbuild.core.errors import InputError, MachineError
from imgbuild.core.project import Project
from imgbuild.core.settings import EngineSettings, Settings
from imgbuild.matrix.images import Image, standin_image
from imgbuild.matrix.selection import Selection
from support.fake_engine import EngineOn, FakeEngine

OLD, NEW, GPU = "tf-2.2-cpu-debian", "tf-2.15-cpu-debian", "tf-2.15-gpu-debian"

Select = Callable[..., list[str]]


@pytest.fixture
def choose(images: dict[str, Image], monkeypatch: pytest.MonkeyPatch) -> Select:
    def chosen(
        *names: str, engine: str = "x86_64", platform: str | None = None, everything: bool = False
    ) -> list[str]:
        def opened(_: EngineSettings) -> AbstractContextManager[FakeEngine]:
            if not engine:
                raise MachineError("no engine")
            return nullcontext(EngineOn(engine))

        monkeypatch.setattr("imgbuild.engine.client.open_engine", opened)
        selected = tuple(images[name] for name in names)
        remote = Settings.model_validate({"engine": {"host": "tcp://build:2375"}})
        found = for_platform(selected, platform, remote, everything=everything)
        return [image.name for image in found]

    return chosen


def test_the_engines_own_platform_is_the_default(choose: Select) -> None:
    assert choose(OLD, NEW) == [OLD, NEW]
    assert choose(NEW, engine="aarch64") == [f"{NEW}-arm64"]
    with pytest.raises(MachineError, match="no engine"):
        choose(NEW, engine="")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_engine_of_an_x86_64_machine_is_not_asked(
    choose: Select, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    """A build with nothing to do asks the engine only one question."""
    choose(NEW, engine="aarch64")  # any later question has this answer
    uname = SimpleNamespace(sysname="Linux", machine=machine)
    monkeypatch.setattr("os.uname", lambda: uname)
    local = Settings.model_validate({"engine": {"host": "unix:///run/docker.sock"}})
    (found,) = for_platform((images[NEW],), None, local, everything=False)
    assert found.architecture == {"x86_64": "amd64", "aarch64": "arm64"}[machine]


def test_a_platform_that_is_named_asks_no_engine(choose: Select) -> None:
    assert choose(NEW, engine="", platform="linux/amd64") == [NEW]
    assert choose(NEW, engine="", platform="linux/arm64") == [f"{NEW}-arm64"]
    assert choose(OLD, NEW, engine="", platform="all") == [OLD, NEW, f"{NEW}-arm64"]
    with pytest.raises(InputError, match=r"--platform arm64: use linux/amd64, linux/arm64 or all"):
        choose(NEW, engine="", platform="arm64")


def test_all_images_are_those_of_the_platform(choose: Select) -> None:
    selected = (OLD, NEW, GPU)
    assert choose(*selected, platform="linux/arm64", everything=True) == [f"{NEW}-arm64"]
    with pytest.raises(InputError, match=f"there is no {OLD}, {GPU}: .* no CUDA.* 2.7 on"):
        choose(*selected, platform="linux/arm64")
    with pytest.raises(InputError, match=f"no {OLD}"):
        choose(OLD, platform="linux/arm64", everything=True)


def test_an_arm_machine_is_told_what_to_do(choose: Select) -> None:
    """An old TensorFlow, and an engine that is neither."""
    words = f"engine's platform is linux/arm64, and there is no {OLD}.* x86-64 machine .* AVX"
    with pytest.raises(InputError, match=words):
        choose(OLD, engine="aarch64")
    with pytest.raises(InputError, match=r"engine's platform is linux/s390x, .* --platform"):
        choose(NEW, engine="s390x")


def test_a_name_can_say_the_platform(project: Project) -> None:
    """Then it is the default."""
    for name in (f"{NEW}-arm64", "2.15-cpu-arm64", "imgbuild/tensorflow:2.15.1-cpu-arm64"):
        named = select(project, Selection(names=(name,)))
        assert [image.name for image in named] == [f"{NEW}-arm64"]
        assert for_platform(named, None, Settings(), everything=False) == named
        with pytest.raises(InputError, match=f"{NEW}-arm64 is for linux/arm64, not for linux/amd"):
            for_platform(named, "linux/amd64", Settings(), everything=False)
        assert for_platform(named, "all", Settings(), everything=False) == named


def test_the_other_image_stays_one_of_stand_ins(images: dict[str, Image]) -> None:
    own = standin_image(images[NEW])
    (other,) = for_platform((own,), "linux/arm64", Settings(), everything=False)
    assert other.repository == own.repository
