"""Measurements of imgbuild beside what people use today; ``python -m benchmarks`` runs them all."""
