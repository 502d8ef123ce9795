"""How far a push has come, from the engine's messages. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class PushedBytes:
    """The layers of one push. The engine tells sizes as it begins with a layer, not before."""

    _layers: dict[str, tuple[int, int]] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)

    def hear(self, message: Mapping[str, object]) -> None:
        """Take in one message of the engine's stream (Docker Engine API, ImagePush)."""
        layer, status = message.get("id"), message.get("status")
        if not isinstance(layer, str) or not isinstance(status, str):
            return
        self._layers.setdefault(layer, (0, 0))
        if status in {"Pushed", "Layer already exists"} or status.startswith("Mounted from"):
            self._done.add(layer)
            self._layers[layer] = (0, 0) if status != "Pushed" else self._layers[layer]
        detail = message.get("progressDetail")
        if isinstance(detail, Mapping) and isinstance(detail.get("current"), int):
            total = detail.get("total")
            self._layers[layer] = (detail["current"], total if isinstance(total, int) else 0)

    @property
    def text(self) -> str:
        """Return ``3 of 8 layers up, 120 MB sent``, in bytes before packing."""
        sent = sum(current for current, _ in self._layers.values())
        layers = f"{len(self._done)} of {len(self._layers)} layers up"
        return f"{layers}, {sent / 1e6:.0f} MB sent" if sent else layers
