"""Shapes: iterations beside the square, and SNI's three domains against fine finite elements.

    python scripts/bench_shapes.py --cells 256 512 1024 -o benchmarks/shapes.json
    python scripts/bench_shapes.py --sni 128 256 -o benchmarks/sni.json

The second needs scikit-fem (``pip install scikit-fem``); its reference solutions have curved quadratic
triangles, refined until they change by less than a tenth of the error that is shown.
"""
