"""Tensors: shapes, dtypes, devices, normalisation, broadcasting, views that share memory."""

import flambeau as torch

house_sizes = torch.tensor([750.0, 1200.0, 1800.0, 2400.0])
house_prices = torch.tensor([150.0, 220.0, 310.0, 410.0])
print("Sizes tensor:", house_sizes)
print("Shape:", house_sizes.shape)
print("Data type:", house_sizes.dtype)

# rows are houses; columns are size, bedrooms, bathrooms
feature_matrix = torch.tensor([
    [750.0, 3.0, 1.0],
    [1200.0, 4.0, 2.0],
    [1800.0, 4.0, 3.0],
    [2400.0, 5.0, 3.0],
])
print("\nFeature matrix shape:", feature_matrix.shape)

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
print("\nUsing device:", device)
feature_matrix = feature_matrix.to(device)
print("Feature matrix device:", feature_matrix.device)

means = feature_matrix.mean(dim=0)
stds = feature_matrix.std(dim=0)
normalised = (feature_matrix - means) / stds
print("\nNormalised features (first row):", normalised[0])

weight = torch.tensor([0.15], requires_grad=True)
bias = torch.tensor([10.0], requires_grad=True)
print("\nWeight requires grad:", weight.requires_grad)
print("House sizes requires grad:", house_sizes.requires_grad)
print("Bias:", bias)

images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
print("\nImages:", images.shape, images.dtype, images.device, f"mean {images.mean():.6f}")

flat = torch.arange(12)
table = flat.view(3, 4)
copy = flat.clone()
table[0, 0] = 99  # the view and what it views are the same memory; the copy is its own
print("\nThrough the view:", flat[0].item(), "| the copy:", copy[0].item())
print("Strides:", table.stride(), "transposed:", table.t().stride(), table.t().is_contiguous())

column, row = torch.arange(2).reshape(2, 1), torch.arange(3).reshape(1, 3)
print("\nBroadcast:", (column + row).shape, (column * 10 + row).tolist())
try:
    torch.zeros(3) + torch.zeros(4)
except RuntimeError:
    print("Shapes (3,) and (4,) do not broadcast")
