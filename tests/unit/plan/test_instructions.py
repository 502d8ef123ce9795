"""What a Dockerfile takes from its context, and which of its stages an edit changes."""

import pytest

from imgbuild.plan.instructions import instructions, read_dockerfile

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
COPY ["files/h i", "/"]
ADD https://host/file /
COPY <<EOF /etc/x
text
EOF
FROM os
ADD files/j/ /
"""


def test_what_it_takes_from_its_context() -> None:
    assert read_dockerfile(DOCKERFILE).paths == (
        *("files/a", "files/d", "files/e", "files/f", "files/h i", "files/j"),
    )


def test_a_bind_mount_without_source_is_the_whole_context() -> None:
    assert read_dockerfile("FROM x\nRUN --mount=type=bind,target=/c ls\n").paths == (".",)


def test_stages_have_names_or_numbers() -> None:
    assert list(read_dockerfile(DOCKERFILE).stages) == ["ARG", "os", "2"]


def test_instructions_are_whole() -> None:
    found = list(instructions(DOCKERFILE))
    assert [one.line.split()[0] for one in found][:4] == ["ARG", "FROM", "RUN", "RUN"]
    assert found[2].line.endswith("target=/c sh /a")
    assert found[3].body == ("# content", "COPY files/not-an-instruction /", "EOT")


@pytest.mark.parametrize(
    ("old", "new", "stages"),
    [
        ("# A comment.", "# Another.\n\n", set()),
        ("# between two lines", "# other", set()),
        ("ARG EPOCH=1", "ARG EPOCH=2", {"ARG"}),
        ("sh /a", "sh /b", {"os"}),
        ("# content", "# other content", {"os"}),
        ("ADD files/j/", "ADD files/k/", {"2"}),
    ],
)
def test_an_edit_changes_its_stage(old: str, new: str, stages: set[str]) -> None:
    before, after = (
        read_dockerfile(text).stages for text in (DOCKERFILE, DOCKERFILE.replace(old, new))
    )
    assert {name for name in before if before[name] != after[name]} == stages
