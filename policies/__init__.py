"""The contract of every policy family, and the policies. One file is one policy; its name is the file's name."""
