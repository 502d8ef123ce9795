"""Stages of a Dockerfile: what they take from the context, which of them an edit changes."""

import pytest

from imgbuild.dockerfile.stages import Dockerfile, needed_stages

DOCKERFILE = """# A comment.
ARG EPOCH=1
FROM base AS os
RUN --mount=type=bind,source=files/a,target=/a \\
    # between two lines
    --mount=type=cache,id=x,target=/b \\
    --mount=type=bind,from=os,source=/files/c,target=/c \\
    sh /a
RUN --mount=source=files/d,target=/d <<'EOT'
# content
COPY files/not-an-instruction /
EOT
COPY --link --chmod=0755 files/e files/f /
COPY --from=os files/g /
COPY files/h /
FROM os
ADD files/j/ /
"""


def test_what_a_stage_stands_on_and_takes() -> None:
    stages = Dockerfile(DOCKERFILE).stages
    parents = {name: one.parent for name, one in stages.items()}
    assert parents == {"ARG": "", "os": "base", "2": "os"}
    assert stages["2"].text == "ADD files/j/ /\n"
    assert stages["os"].needs == {"base", "os"}
    assert stages["os"].paths == tuple(f"files/{name}" for name in "adefh")
    assert stages["2"].paths == ("files/j",)
    # A bind mount without a source is the whole context.
    assert Dockerfile("FROM x\nRUN --mount=type=bind,target=/d ls\n").final.paths == (".",)


def test_needed_stages() -> None:
    text = "FROM x AS a\nFROM a AS b\nFROM x AS c\nFROM x AS d\nCOPY --from=b / /\n"
    stages = Dockerfile(text).stages
    assert [*needed_stages(stages, "d")] == ["a", "b", "d"]
    assert [*needed_stages(stages, "d", {"b"})] == ["d"]


def test_instructions_are_whole() -> None:
    _, first, second, *_ = Dockerfile(DOCKERFILE).stages["os"].instructions
    assert first.line.endswith("target=/c sh /a")
    assert first.text in DOCKERFILE
    assert second.body == ("# content", "COPY files/not-an-instruction /", "EOT")
    assert second.text.endswith("\nEOT\n")


@pytest.mark.parametrize(
    ("old", "new", "stages"),
    [
        ("# between two lines", "# other", set()),
        ("ARG EPOCH=1", "ARG EPOCH=2", {"ARG"}),
        ("# content", "# other content", {"os"}),
        ("ADD files/j/", "ADD files/k/", {"2"}),
    ],
)
def test_an_edit_changes_its_stage(old: str, new: str, stages: set[str]) -> None:
    before, after = (
        {name: stage.digest for name, stage in Dockerfile(text).stages.items()}
        for text in (DOCKERFILE, DOCKERFILE.replace(old, new))
    )
    assert {name for name in before if before[name] != after[name]} == stages


CHOICE = """\
FROM base AS os
FROM os AS tools
FROM tools AS cross
FROM os AS packages-amd64
RUN one
FROM cross AS packages-arm64
RUN two
# A comment.
FROM packages-${TARGETARCH} AS packages
FROM packages AS final-amd64
RUN three
FROM final-amd64 AS final-arm64
RUN four
FROM final-${TARGETARCH} AS final
"""


@pytest.mark.parametrize(
    ("architecture", "stages", "chain"),
    [
        ("amd64", "os packages final", ["RUN one", "RUN three"]),
        (
            "arm64",
            "os tools cross packages final-amd64 final",
            ["RUN two", "RUN three", "RUN four"],
        ),
    ],
)
def test_a_build_for_one_architecture_has_its_own_stages(
    architecture: str, stages: str, chain: list[str]
) -> None:
    own = Dockerfile(CHOICE).for_architecture(architecture)
    assert list(own.stages) == stages.split()
    lines = [one.line for stage in own.chain for one in stage.instructions]
    assert [line for line in lines if line.startswith("RUN")] == chain


def test_a_dockerfile_without_a_choice_is_the_same_for_each_architecture() -> None:
    whole = Dockerfile(DOCKERFILE)
    assert whole.for_architecture("arm64") == whole
