# ruff: noqa: F811  # fixtures of another module
"""A fetched folder as a seed: what it has comes from it, what it lacks is no fault."""

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_offline import SETTINGS, dest, image, made  # noqa: F401

from imgbuild.build import supplies
from imgbuild.fetching import seed
from imgbuild.fetching.offline import FetchedInputs
from imgbuild.fetching.seed import open_seed
from imgbuild.files import ContentStore, file_sha256
from imgbuild.inputs.base import BaseLayout, find_base
from imgbuild.inputs.build_inputs import base_recipe
from imgbuild.inputs.download import Download
from imgbuild.inputs.oci_layout import read_layout
from imgbuild.matrix.images import Image
from imgbuild.plan.digest import InputDigest
from imgbuild.plan.plan import Action, PlanItem
from imgbuild.project import Project
from imgbuild.settings import RegistryBase, Settings


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "cache"


def _seed(
    dest: Path, chosen: list[Image], project: Project, cache: Path, settings: Settings = SETTINGS
) -> tuple[FetchedInputs, tuple[str, ...]]:
    return open_seed(dest, chosen, project, settings, cache)


def test_a_base_that_was_made_elsewhere_becomes_this_users(
    dest: Path, made: Path, image: Image, project: Project, cache: Path
) -> None:
    fetched, lacking = _seed(dest, [image], project, cache)
    found = find_base(base_recipe(image), cache)
    assert found
    assert read_layout(found.path) == read_layout(made)
    assert not lacking
    # So the next build, without a seed, has the same base; logins stay, since there is a network.
    assert fetched.settings(SETTINGS, [image]) == SETTINGS


def test_a_base_that_was_made_here_stays(
    dest: Path, image: Image, project: Project, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = BaseLayout(cache, "sha256:own", "imgbuild/base:own", "sha256:own")
    monkeypatch.setattr(seed, "find_base", lambda *_: own)
    monkeypatch.setattr(seed, "adopt_base", lambda *_: pytest.fail("it was replaced"))
    assert _seed(dest, [image], project, cache)


def test_a_registrys_base_comes_from_the_folder(
    dest: Path, image: Image, project: Project, cache: Path
) -> None:
    fetched, _ = _seed(dest, [image], project, cache)
    listing = replace(fetched.listings[image.name], base=f"debian@sha256:{'0' * 64}")
    other = replace(fetched, listings={image.name: listing})
    assert {*other.settings(SETTINGS, [image]).base} == {"debian-12"}


def test_images_that_were_not_fetched_are_no_fault(
    dest: Path, image: Image, images: dict[str, Image], project: Project, cache: Path
) -> None:
    other = images["tf-2.1-cpu-debian"]
    fetched, lacking = _seed(dest, [image, other], project, cache)
    assert {*fetched.listings} == {image.name}
    (reason,) = lacking
    assert reason.startswith(f"Packages of {other.name} come from the network: {dest} holds nothi")
    ContentStore(dest).path(hashlib.sha256(b"deb").hexdigest()).unlink()
    fetched, lacking = _seed(dest, [image], project, cache)
    assert not fetched.listings
    assert "lacks g++" in lacking[0]
    assert fetched.settings(SETTINGS, [image]) == SETTINGS


def test_downloads_are_taken_over_if_they_are_whole(tmp_path: Path, cache: Path) -> None:
    dest = tmp_path / "dest"
    content = {"good": b"good", "bad": b"bad", "there": b"there"}
    files = {n: Download(n, "", hashlib.sha256(c).hexdigest()) for n, c in content.items()}
    for name, file in files.items():
        path = ContentStore(dest).path(file.sha256)
        path.parent.mkdir(parents=True)
        path.write_bytes(content[name] if name != "bad" else b"BAD")
    seed._seed_downloads([*files.values(), Download("x", "", "0" * 64)], dest, cache)
    store = cache / "downloads"
    assert file_sha256(ContentStore(store).path(files["good"].sha256)) == files["good"].sha256
    assert ContentStore(store).find(files["there"].sha256)
    assert not ContentStore(store).find(files["bad"].sha256)


def test_each_image_has_its_supplies_from_where_they_are(
    dest: Path, image: Image, project: Project, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(image, stack="other")
    assert other.name != image.name
    fetched, _ = _seed(dest, [image, other], project, cache)
    monkeypatch.setattr(supplies, "downloads_context", lambda *_: Path("/from/the/network"))

    workshop: Any = SimpleNamespace(
        fetched=fetched,
        cache=cache,
        sites=None,
        inputs=SimpleNamespace(downloads={other.name: SimpleNamespace(contexts={"downloads": ()})}),
    )
    items = [PlanItem(one, InputDigest("sha256:0", {}), Action.BUILD, "") for one in (image, other)]
    found = supplies.bring_downloads(items, workshop)
    assert {*found[image.name]} == {"downloads", "offline"}
    assert found[other.name] == {"downloads": Path("/from/the/network")}


def test_a_setting_of_a_registrys_base_is_not_overruled(
    dest: Path, image: Image, project: Project, cache: Path
) -> None:
    base = {"debian-12": {"from": "registry", "image": f"debian@sha256:{'0' * 64}"}}
    other = Settings.model_validate({**SETTINGS.model_dump(by_alias=True), "base": base})
    fetched, _ = _seed(dest, [image], project, cache, other)
    assert isinstance(fetched.settings(other, [image]).base["debian-12"], RegistryBase)
    assert find_base(base_recipe(image), cache) is None
