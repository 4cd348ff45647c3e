"""A gradient of one's own: autograd.Function, checked against numbers, used in a layer."""

import flambeau as torch
import flambeau.nn as nn


class Round(torch.autograd.Function):
    """Rounds to steps of 1 / levels; passes the gradient as if it had not."""

    @staticmethod
    def forward(ctx, x, levels):
        return (x * levels).round() / levels

    @staticmethod
    def backward(ctx, grad):
        return grad, None  # one for each input; `levels` is no tensor


class Cube(torch.autograd.Function):
    """x ** 3, with what backward needs saved in forward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2  # made of ops, so it can be differentiated again


x = torch.tensor([0.1, 0.26, 0.9], requires_grad=True)
rounded = Round.apply(x, 4)
rounded.sum().backward()
print("rounded", rounded, "gradient", x.grad)

x = torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64, requires_grad=True)
print("first and second derivative agree with differences:",
      torch.autograd.gradcheck(Cube.apply, x), torch.autograd.gradgradcheck(Cube.apply, x))
(first,) = torch.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
(second,) = torch.autograd.grad(first.sum(), x)
print("first ", first.detach())
print("second", second)


class RoundedLinear(nn.Linear):
    """A layer whose weights are few values, and which still learns."""

    def forward(self, x):
        return nn.functional.linear(x, Round.apply(self.weight, 4), self.bias)


torch.manual_seed(0)
inputs = torch.randn(256, 3)
wanted = inputs @ torch.tensor([[0.5], [-1.25], [2.0]])
layer = RoundedLinear(3, 1)
optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
for _ in range(200):
    loss = nn.functional.mse_loss(layer(inputs), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("weights found:", Round.apply(layer.weight.detach(), 4).tolist(), f"loss {loss.item():.6f}")
