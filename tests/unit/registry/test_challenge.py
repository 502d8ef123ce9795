"""What registries say with 401, in the forms that RFC 9110 allows."""

import pytest

from imgbuild.registry.challenge import Challenge, challenge_of, read_challenges


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", ()),
        ("Basic", (Challenge("basic"),)),
        ('Basic realm="a \\"b\\", c"', (Challenge("basic", {"realm": 'a "b", c'}),)),
        (
            'Bearer realm="https://auth.example.org/token?x=1",service="s, t",scope="a:b:c,d"',
            (
                Challenge(
                    "bearer",
                    {
                        "realm": "https://auth.example.org/token?x=1",
                        "service": "s, t",
                        "scope": "a:b:c,d",
                    },
                ),
            ),
        ),
        (
            'basic Realm=plain , BEARER realm = "x", error="invalid_token"',
            (
                Challenge("basic", {"realm": "plain"}),
                Challenge("bearer", {"realm": "x", "error": "invalid_token"}),
            ),
        ),
        ("realm=lost", ()),
    ],
)
def test_forms(header: str, expected: tuple[Challenge, ...]) -> None:
    assert read_challenges(header) == expected


def test_one_of_several() -> None:
    found = challenge_of('Negotiate, Basic realm="x"', "basic")
    assert found == Challenge("basic", {"realm": "x"})
    assert challenge_of('Basic realm="x"', "bearer") is None
