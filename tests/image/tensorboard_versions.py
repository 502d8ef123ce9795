"""How the TensorBoards of the images differ, read out of their packages."""

from __future__ import annotations

from enum import Enum

Version = tuple[int, int]


class ProjectorTab(Enum):
    """How the page opens the tab `projector`."""

    #: Its code is part of the page.
    INSIDE = "inside"
    #: It imports `/data/plugin/projector/index.js` from the server's root, and stays empty where a
    #: proxy serves TensorBoard under a path of its own: TensorBoard's issue 2456.
    FROM_ROOT = "from the server's root"
    #: It opens `data/plugin_entry.html`, relative to itself.
    RELATIVE = "relative"


def apis(tensorflow: Version) -> tuple[str, ...]:
    """Return the ways a TensorFlow writes events, as events_write.py calls them."""
    return ("v1", "v2") if tensorflow >= (1, 14) else ("v1", "contrib")


def writes_text(api: str) -> bool:
    """Return whether an API has text: tf.contrib.summary has none."""
    return api != "contrib"


def image_tag(api: str, tag: str) -> str:
    """Return the tag under which TensorBoard shows an image: the first two APIs number them."""
    return tag if api == "v2" else f"{tag}/image/0"


def graph_listing(tensorboard: Version) -> str:
    """Return the route below `data/plugin/graphs/` that lists the runs with a graph."""
    return "info" if tensorboard >= (1, 14) else "runs"


def serves_all_interfaces(tensorboard: Version) -> bool:
    """Return whether others reach it without an option: from 2.0 on it serves localhost only."""
    return tensorboard < (2, 0)


def for_all_interfaces(tensorboard: Version) -> list[str]:
    """Return the options with which others reach it: 2.0 brought `--bind_all`."""
    return ["--bind_all"] if tensorboard >= (2, 0) else ["--host", "0.0.0.0"]  # noqa: S104


def projector_tab(tensorboard: Version) -> ProjectorTab:
    """Return how the tab is opened: 1.15 made it a page of its own, 2.1 relative."""
    if tensorboard < (1, 15):
        return ProjectorTab.INSIDE
    return ProjectorTab.FROM_ROOT if tensorboard < (2, 1) else ProjectorTab.RELATIVE


def projector_page(tensorboard: Version) -> str:
    """Return the path of the page with the projector's code, below TensorBoard's own."""
    if projector_tab(tensorboard) is ProjectorTab.INSIDE:
        return ""
    return "data/plugin/projector/projector_binary.html"
