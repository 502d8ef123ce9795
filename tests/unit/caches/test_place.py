"""What names a cache, and what is refused, by one clear paragraph."""

from pathlib import Path

import pytest

from imgbuild.caches.place import FolderPlace, Place, RegistryPlace, cache_place
from imgbuild.errors import InputError

FROM, TO = "--cache-from", "--cache-to"


@pytest.mark.parametrize(
    ("option", "value", "place"),
    [
        (FROM, "/srv/cache", FolderPlace(Path("/srv/cache"))),
        (FROM, "./cache", FolderPlace(Path.cwd() / "cache")),
        (TO, "~/a cache@home", FolderPlace(Path.home() / "a cache@home")),
        (FROM, "type=local,src=/srv/cache", FolderPlace(Path("/srv/cache"))),
        (FROM, "type=local,src=cache", FolderPlace(Path.cwd() / "cache")),
        (TO, "type=local,dest=../cache", FolderPlace(Path.cwd() / ".." / "cache")),
        (FROM, "r.example.org/ci/cache", RegistryPlace("r.example.org/ci/cache")),
        (FROM, "localhost/cache", RegistryPlace("localhost/cache")),
        (TO, "registry:5000/cache", RegistryPlace("registry:5000/cache")),
        (TO, "127.0.0.1:5000/a/b_c", RegistryPlace("127.0.0.1:5000/a/b_c")),
        (TO, "type=registry,ref=r.example.org/cache", RegistryPlace("r.example.org/cache")),
    ],
)
def test_short_forms_and_those_of_buildkit(option: str, value: str, place: Place) -> None:
    assert cache_place(option, value) == place


@pytest.mark.parametrize(
    "value",
    [
        "",
        "cache",
        "user/cache",
        "https://r.example.org/cache",
        "r.example.org/cache:tag",
        "r.example.org/Cache",
        "r.example.org",
        "r.example.org/cache;id",
        "type=gha",
        "type=inline",
        "type=local",
        "type=local,src=",
        "type=local,dest=/srv/cache",
        "type=local,src=/srv/cache,mode=max",
        "type=registry,ref=user/cache",
        "src=/srv/cache",
        "./a\nb",
    ],
)
def test_anything_else_is_refused(value: str) -> None:
    with pytest.raises(InputError) as caught:
        cache_place(FROM, value)
    assert str(caught.value).startswith(FROM)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        "joe:s3cret@r.example.org/cache",
        "https://joe:s3cret@r.example.org/cache",
        "type=registry,ref=joe:s3cret@r.example.org/cache",
        "type=registry,ref=r.example.org/cache,password=s3cret",
    ],
)
def test_a_login_is_refused_and_not_quoted(value: str) -> None:
    with pytest.raises(InputError) as caught:
        cache_place(TO, value)
    assert "s3cret" not in str(caught.value)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="that is no folder"):
        cache_place(TO, str(tmp_path / "file"))
