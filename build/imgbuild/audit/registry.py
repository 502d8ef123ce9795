"""Whether a registry has a base image under the digest that is pinned."""

from dataclasses import dataclass, field

from imgbuild.audit.signature import State
from imgbuild.errors import CheckFailedError, ImgbuildError
from imgbuild.fetching.registry import find_image
from imgbuild.sites import Sites


@dataclass(frozen=True)
class BaseImage:
    """An image by digest, and how registries are spoken to here."""

    reference: str
    sites: Sites = field(compare=False)


def judge_image(image: BaseImage) -> tuple[State, str]:
    """Return the state of an image and a short word on it; its layers are not read."""
    try:
        found = find_image(image.reference, image.sites)
    except CheckFailedError as error:
        return "differs", str(error)
    except ImgbuildError as error:
        return "not reachable from here", _short(str(error))
    size = sum(layer.size for layer in found.layers)
    return "verified", f"manifest right, {size / 1e6:.0f} MB of layers"


def _short(reason: str) -> str:
    return "DNS" if "Name or service not known" in reason else reason.partition(". ")[0][-60:]
