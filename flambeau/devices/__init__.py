"""Where kernels run. A device is found by name and opened on first use."""
