"""Pure foundations: dtypes, shapes, expressions, kernels. No tensor, no device, no I/O."""
