"""Which shapes are captured as graphs, and which graph a step replays. One file is one policy."""
