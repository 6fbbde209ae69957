"""The card of PolyGraph: plan-buffered CUDA graphs under draft lengths that change every step."""
