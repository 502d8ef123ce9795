"""What the program finds that runs in images: here, in folders laid out as an image's."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from imgbuild.publish import sbom_program


def _package(folder: Path, name: str, *lines: str) -> None:
    file = folder / name / "METADATA" if name.endswith("dist-info") else folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(("Metadata-Version: 2.1", *lines, "", "Name: not a header")))


def test_each_package_once_with_the_licence_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "a" / "site-packages", tmp_path / "b" / "site-packages"
    osi = "Classifier: License :: OSI Approved :: "
    six = ("Name: six", "Version: 1.17.0")
    _package(one, "six-1.17.0.dist-info", *six, "License: UNKNOWN", f"{osi}MIT License")
    _package(other, "six-1.17.0.dist-info", *six, "License: another")
    _package(
        one, "x-1.dist-info", "Name: x", "Version: 1", "License-Expression: MIT", "License: no"
    )
    _package(one, "long-1.dist-info", "Name: long", "Version: 1", "License: " + "word " * 99)
    _package(one, "old-2.egg-info", "Name: old", "Version: 2", "License: BSD")
    _package(one, "broken-1.dist-info", "Name: broken")
    record = {"name": "python", "version": "3.6.2", "build": "hca_19", "license": "PSF"}
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta" / "python-3.6.2-hca_19.json").write_text(json.dumps(record))
    query = tmp_path / "dpkg-query"
    query.write_text("#!/bin/sh\nprintf 'ii \\ta\\t1\\nrc \\tb\\t2\\nhi \\tc\\t3\\n'\n")
    query.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    walk = os.walk

    def below(top: str) -> Iterator[tuple[str, list[str], list[str]]]:
        assert top == "/"
        return walk(tmp_path)

    monkeypatch.setattr("imgbuild.publish.sbom_program.os.walk", below)
    sbom_program.main()
    found = json.loads(capsys.readouterr().out)
    assert found["python"] == [
        ["long", "1", "", str(one)],
        ["old", "2", "BSD", str(one)],
        ["six", "1.17.0", "MIT License", str(one)],
        ["x", "1", "MIT", str(one)],
    ]
    assert found["conda"] == [["python", "3.6.2", "PSF", "hca_19"]]
    assert found["system"] == [["a", "1"], ["c", "3"]]
    query.write_text("#!/bin/sh\nexit 1\n")
    assert sbom_program.system_packages() is None
