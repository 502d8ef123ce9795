"""Every pair of moments at which two pushes may meet or be killed: `make nightly`."""

import pytest

from imgbuild.core.project import Project
from imgbuild.matrix.images import all_images
from imgbuild.matrix.load import load_matrix
from support.paused_push import KILLS, race, request_counts
from support.project_copy import ROOT
from support.push_bench import NAME

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("kills", KILLS)
def test_immutable_tag_never_moves(kills: str) -> None:
    images = {image.name: image for image in all_images(load_matrix(Project(ROOT).matrix))}
    length, _ = request_counts(images[NAME])
    for before in range(length):
        for meanwhile in range(length):
            race(images[NAME], before, meanwhile, kills)
