"""Storage, tensors, the autograd graph, and the eager path."""
