"""How many draft tokens each request of a batch gets. One file is one policy."""
