"""Suite `imports`: every package that `imgbuild extend` was asked for can be imported.

A package can fit by its metadata, and need another TensorFlow or a library that is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from out_of_time import out_of_time

if TYPE_CHECKING:
    from container import Container, Ran
    from expectation import Expectation

OF_EXTENSIONS = True
#: For the start of the program, and for each package: some start TensorFlow.
SECONDS, SECONDS_EACH = 60, 30


@pytest.fixture(scope="module")
def imported(container: Container, expect: Expectation) -> Ran:
    """Import a module of each package, each in a process of its own."""
    names = sorted(expect.requested)
    seconds = SECONDS + SECONDS_EACH * len(names)
    return container.program("import_packages.py", *names, seconds=seconds)


def test_package_can_be_imported(
    requested_package: str, imported: Ran, expect: Expectation
) -> None:
    """A top module can be imported: the one that is called like the package, if there is one."""
    found = imported.json[requested_package]
    name = f"{requested_package} {expect.requested[requested_package]}"
    if found["late"]:
        out_of_time(f"{name}: import {found['module']}: {found['error']}")
    assert not found["error"], f"{name}: import {found['module']}: {found['error']}"
