"""House prices from sizes: gradient descent written out, with tensors and autograd alone."""

import flambeau as torch

torch.manual_seed(42)

# price = 0.18 * size + 5 is what is to be found
house_sizes = torch.tensor([750.0, 1200.0, 1800.0, 2400.0])
house_prices = torch.tensor([140.0, 221.0, 329.0, 437.0])

weight = torch.tensor([0.01], requires_grad=True)
bias = torch.tensor([0.01], requires_grad=True)
learning_rate = 0.0000001  # tiny, because sizes are in the thousands

for epoch in range(6):
    predicted_prices = weight * house_sizes + bias
    loss = ((predicted_prices - house_prices) ** 2).mean()
    if weight.grad is not None:  # gradients add up unless they are cleared
        weight.grad.zero_()
        bias.grad.zero_()
    loss.backward()
    with torch.no_grad():  # the update is no part of the graph
        weight -= learning_rate * weight.grad
        bias -= learning_rate * bias.grad
    print(f"Epoch {epoch + 1:2d} | Loss: {loss.item():.2f} | "
          f"weight: {weight.item():.5f} | bias: {bias.item():.5f}")

print("\nFinal model: price =", round(weight.item(), 4), "* size +", round(bias.item(), 4))
print("Target model: price = 0.18 * size + 5")

with torch.no_grad():
    test_size = torch.tensor([2000.0])
    predicted = weight * test_size + bias
    print(f"\nPredicted price for 2000 sq ft: ${predicted.item():.1f}k")
