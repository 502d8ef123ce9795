"""NVIDIA's GPU generations by compute capability, with cards that people know.

Sources: https://developer.nvidia.com/cuda-gpus and https://developer.nvidia.com/cuda-legacy-gpus
(capability of each card); CUDA C++ Programming Guide, "Compute Capabilities" (generations).
Capabilities of Tegra and Jetson boards are left out: no x86-64 image runs there.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Generation:
    """One compute capability: its generation's name, and examples of its cards."""

    name: str
    capability: str
    examples: str


GENERATIONS = (
    Generation("Kepler", "3.0", "GeForce GTX 680, GRID K520"),
    Generation("Kepler", "3.5", "Tesla K40, GeForce GTX Titan"),
    Generation("Kepler", "3.7", "Tesla K80"),
    Generation("Maxwell", "5.0", "GeForce GTX 750 Ti, Quadro K2200"),
    Generation("Maxwell", "5.2", "Tesla M40, M60, GeForce GTX 980"),
    Generation("Pascal", "6.0", "Tesla P100"),
    Generation("Pascal", "6.1", "Tesla P4, P40, GeForce GTX 1080"),
    Generation("Volta", "7.0", "Tesla V100, Titan V"),
    Generation("Turing", "7.5", "Tesla T4, GeForce RTX 2080"),
    Generation("Ampere", "8.0", "A100, A30"),
    Generation("Ampere", "8.6", "A10, A40, GeForce RTX 3090"),
    Generation("Ada", "8.9", "L4, L40, GeForce RTX 4090"),
    Generation("Hopper", "9.0", "H100, H200"),
    Generation("Blackwell", "10.0", "B200, GB200"),
    Generation("Blackwell", "12.0", "GeForce RTX 5090, RTX PRO 6000"),
)
