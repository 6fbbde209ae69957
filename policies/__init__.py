"""The contract of every policy family, and the policies. One file is one policy and gives it its name."""
