"""Autograd: a small graph by hand, gradients that add up, and parts that are left out of it."""

import flambeau as torch

a = torch.tensor(2.0, requires_grad=True)
b = torch.tensor(3.0, requires_grad=True)
c = a * b
d = c + a  # a is used twice, so its gradient is a sum over two paths
loss = d**2
loss.backward()
print(f"forward : c={c.item()}, d={d.item()}, L={loss.item()}")
print(f"backward: dL/da={a.grad.item()}, dL/db={b.grad.item()}")

torch.manual_seed(0)
w = torch.randn(3, requires_grad=True)
x = torch.tensor([1.0, 2.0, 3.0])
y = (w * x).sum()
print("\ny was made by", y.grad_fn.name())
print("w =", w)
print("y =", y)
y.backward()
print("w.grad =", w.grad)

(w * x).sum().backward()
print("after a second backward:", w.grad)
w.grad = None

with torch.no_grad():
    print("\nrecorded inside no_grad:", (w * x).requires_grad)
features = w * x
print("recorded outside:", features.requires_grad, "| detached:", features.detach().requires_grad)

# a vector needs a vector to be multiplied with
features.backward(torch.tensor([1.0, 0.0, -1.0]))
print("vector-Jacobian product:", w.grad)


def steps(x, weight, depth):
    """The graph is whatever Python does: a loop and a condition on values."""
    for _ in range(depth):
        x = torch.relu(x @ weight)
        if x.mean() > 0:
            x = x * 2
    return x


torch.manual_seed(1)
weight = torch.randn(4, 4, requires_grad=True)
start = torch.randn(2, 4)
for depth in (1, 2, 3):
    weight.grad = None
    steps(start, weight, depth).sum().backward()
    print(f"\ndepth {depth}: gradient norm {weight.grad.norm().item():.4f}")
