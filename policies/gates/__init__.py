"""Whether a branch is speculated on, and on which candidates. One file is one policy."""
