"""What can be said of kernels without a GPU: that they compile, what they take, and that the guard is first."""
