"""Where an audit reads from, and how much of it: what the options say."""

from dataclasses import dataclass

from imgbuild.audit.client import Client
from imgbuild.audit.evidence import Cache
from imgbuild.audit.index_address import IndexAddress
from imgbuild.audit.progress import Progress


@dataclass(frozen=True)
class Sources:
    """The two clients differ in patience: ``inputs`` asks sites that may well not be there."""

    client: Client
    inputs: Client
    index: IndexAddress
    cache: Cache
    progress: Progress
    refresh: bool = False
    download: bool = False
