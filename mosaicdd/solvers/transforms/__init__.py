"""Fast sine and cosine transforms of separable equations."""
