"""PyTorch's symbolic functions of opset 11: there are none here, see symbolic_helper.py."""
