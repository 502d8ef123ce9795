"""What must hold in a registry at every moment of a push, and what when it is done."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from registry_proxy import Asked
    from registry_storage import RegistryStorage

RECORD = "application/vnd.imgbuild.record.v1+json"
INDEX = "application/vnd.imgbuild.index.v1+json"
IMMUTABLE = re.compile(r".*-(\d{8}\.\d+)")


@dataclass
class PublishedState:
    """A repository; ``green`` tells the ids of the images whose suites have all passed."""

    storage: RegistryStorage
    green: Callable[[], set[str]]
    #: Every immutable tag that has a record, and its digest: no other one may ever be there.
    fixed: dict[str, str] = field(default_factory=dict)
    #: Whether two pushes of different images are at work. Then an engine can put content under a
    #: tag that another one has just taken, until its push gives the tag back; and moving tags can
    #: be at the image that lost its record, until its push hands them over (docs/evidence.md).
    race: bool = False

    def check(self, asked: Asked | None = None) -> None:
        """Fail unless every tag stands for something whole, and every moving one for good."""
        tags = self.storage.tags()
        when = f"after {asked.method} {asked.path} (request {asked.number})" if asked else "now"
        for tag, digest in tags.items():
            missing = self.storage.missing(digest)
            assert not missing, f"{when}: {tag} lacks {missing}"
        for tag in filter(is_moving, tags):
            self._check_moving(tags, tag, when)
        for tag in filter(IMMUTABLE.fullmatch, tags):
            if f"{tag}.record" in tags and not self.race:
                before = self.fixed.setdefault(tag, tags[tag])
                assert tags[tag] == before, f"{when}: {tag} was {before} and is {tags[tag]}"

    def check_done(self, *planned: str) -> dict[str, str]:
        """Fail unless these tags are there, with records and index and nothing else."""
        self.race = False
        self.check()
        tags = self.storage.tags()
        records = {f"{tag}.record" for tag in tags if IMMUTABLE.fullmatch(tag)}
        assert {*tags} == {*planned, *records, "index"}, sorted(tags)
        index = self.read(tags["index"], INDEX)
        held = {tag: tags[holder] for tag, holder in index["moving"].items()}
        assert held == {tag: tags[tag] for tag in tags if is_moving(tag)}, f"they are {tags}"
        listed = {one["tag"]: one for one in index["records"]}
        assert {f"{tag}.record" for tag in listed} == records, f"the index has {[*listed]}"
        for tag, record in listed.items():
            whole = self.read(tags[f"{tag}.record"], RECORD, subject=tags[tag])
            assert record == {**whole, "report": {}}, "the index has another record"
            verdicts = {suite["verdict"] for suite in whole["report"].values()}
            assert verdicts == {"passed"}, f"{tag} is recorded as {verdicts}"
            there = (tag, tags[tag], self.image_id(tags[tag]))
            recorded = (record["tag"], record["digest"], record["image_id"])
            assert recorded == there, f"{recorded} is recorded of {there}"
        return tags

    def image_id(self, digest: str) -> str:
        """Return the id that an image of this manifest has on an engine with a graph driver."""
        return str(self.storage.document(digest)["config"]["digest"])

    def read(self, digest: str, kind: str, *, subject: str | None = None) -> Any:
        """Return what a record or the index says."""
        manifest = self.storage.document(digest)
        about = (manifest["artifactType"], (manifest.get("subject") or {}).get("digest"))
        assert about == (kind, subject), f"{digest} is {about}, not {(kind, subject)}"
        (layer,) = manifest["layers"]
        return self.storage.document(layer["digest"])

    def _check_moving(self, tags: dict[str, str], tag: str, when: str) -> None:
        image_id = self.image_id(tags[tag])
        assert image_id in self.green(), f"{when}: {tag} is {image_id}, which has not passed"
        if self.race:
            return
        same = [other for other in tags if other != tag and tags[other] == tags[tag]]
        whole = [other for other in same if f"{other}.record" in tags]
        assert whole, f"{when}: {tag} moved before its immutable tag and record, there is {same}"


def is_moving(tag: str) -> bool:
    """Return whether a tag may move: no release in it, and nothing of imgbuild's own."""
    return not IMMUTABLE.fullmatch(tag) and not tag.endswith(".record") and tag != "index"
