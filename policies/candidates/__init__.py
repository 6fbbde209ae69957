"""Who is likely at a branch. One file is one policy."""
