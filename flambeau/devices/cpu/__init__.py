"""The CPU: kernels as machine code generated in this process."""
