"""What everyday calls cost on small tensors: those that programs are full of, one thread.

Where overhead.py looks at the way of one op through the engine, this looks at breadth: a call that
nobody thought of is as slow as its front.
"""

from __future__ import annotations

import sys

import numpy
import peer

#: expressions over the names that `world` gives; each is a case, named by itself
CALLS = """
x[0, 0].item() | x.tolist() | x.numpy() | torch.from_numpy(array) | torch.tensor(array)
torch.tensor(5) | torch.tensor([5]) | torch.tensor([1., 2., 3.])
torch.tensor([[1., 2.], [3., 4.]]) | torch.zeros(16, 32) | torch.ones(3) | torch.full((3,), 2.)
torch.arange(10) | torch.eye(4) | torch.linspace(0, 1, 10) | torch.randn(16, 32) | torch.rand(4)
torch.randint(0, 5, (4,)) | torch.randperm(16) | torch.zeros_like(x) | torch.empty(4, 4)
torch.manual_seed(0) | torch.where(mask, x, y) | x.clamp(-1, 1) | x.clamp(min=0)
x.masked_fill(mask, 0.) | -x | x ** 3 | x.max() | x.max(1) | x.argmax(1) | x.topk(3) | x.sort()
x.median() | x.mean(1) | x.std() | x.sum(0) | x.abs() | x.sigmoid() | x.floor() | x.isnan().any()
mask.any() | ~mask | (x > y).sum() | x.norm() | labels + 1 | labels // 2 | labels.float()
x.double() | x.long() | x.to(torch.float32) | logits.gather(1, labels[:, None])
torch.zeros(16, 10).scatter_(1, labels[:, None], 1.) | functional.one_hot(labels, 10)
labels.unique() | torch.bincount(labels) | mask.nonzero() | x[i] | x[i, i] | x[mask] | x[:, None]
x[2:5, 1:] | b3[..., 0] | x.index_select(0, i) | x.narrow(0, 1, 3) | torch.stack([x, y])
torch.cat([x, y], 1) | torch.cat([x] * 8) | x.chunk(4) | x.split(4) | x.unbind()
b3.permute(2, 0, 1) | b3.reshape(4, -1) | b3.view(32, 16) | x[None].expand(4, 16, 32)
x.T.contiguous() | x.repeat(2, 1) | x.roll(1, 0) | x.flip(0) | img.flatten(1) | x.clone()
leaf.detach() | x.size(0) | x.shape | torch.triu(w) | torch.outer(v, v) | v.dot(v) | w @ v | x @ w
torch.addmm(v, x, w) | b3 @ b3.mT | torch.einsum('ij,kj->ik', x, y)
torch.einsum('bij,bkj->bik', b3, b3) | torch.cdist(x, y) | torch.lerp(x, y, .1)
torch.addcmul(x, x, y) | torch.equal(x, y) | torch.allclose(x, y) | x.cumsum(1) | z.add_(1)
z.mul_(.5) | z.copy_(x) | z.fill_(0) | z.zero_() | torch.multinomial(chances, 1)
functional.relu(x) | functional.leaky_relu(x) | functional.elu(x) | functional.silu(x)
functional.gelu(x) | functional.glu(x) | functional.softmax(logits, 1)
functional.log_softmax(logits, -1) | functional.cross_entropy(logits, labels)
functional.nll_loss(logits, labels) | functional.mse_loss(x, y) | functional.l1_loss(x, y)
functional.smooth_l1_loss(x, y) | functional.binary_cross_entropy_with_logits(x, y)
functional.normalize(x, dim=1) | functional.cosine_similarity(x, y)
functional.pad(img, (1, 1, 1, 1)) | functional.unfold(img, 3)
functional.interpolate(img, scale_factor=2, mode='bilinear') | functional.avg_pool2d(img, 2)
functional.adaptive_avg_pool2d(img, 1) | functional.scaled_dot_product_attention(b4, b4, b4)
linear(x) | embedding(ids) | dropout(x) | batch_norm(img) | layer_norm(x) | cell(x) | gru(b3)
conv(img) | attention(b3, b3, b3) | encoder(b3) | pool(img) | upsample(img) | transposed(img)
model(x) | train() | adam.step() | torch.autograd.grad((leaf * leaf).sum(), leaf)
model.state_dict() | nn.utils.clip_grad_norm_(parameters, 1.) | nn.Linear(32, 32) | repr(v)
f'{x[0, 0]:.3f}' | (logits.argmax(1) == labels).float().mean().item() | torch.linalg.inv(w)
torch.fft.rfft(v) | torch.fft.rfft(x) | torch.arange(0, 10, 2) | torch.arange(0., 1., .1)
x[[0, 2, 4]] | x[:, [1, 2]] | x.to('cpu') | x.contiguous() | x.kthvalue(3) | x % 2
torch.einsum('i,j->ij', v, v) | torch.einsum('ii', w) | torch.diag(v) | x.movedim(0, 1)
torch.nan_to_num(x) | torch.isin(labels, i) | x.masked_scatter(mask, y) | x.index_fill(0, i, 1.)
torch.bernoulli(chances) | torch.multinomial(chances, 5, replacement=True)
functional.pad(img, (1, 1, 1, 1), mode='reflect') | functional.adaptive_max_pool2d(img, 2)
functional.grid_sample(img, points, align_corners=False) | bag(ids)
torch.linalg.cholesky(definite) | torch.linalg.qr(w) | torch.linalg.solve(w, v)
torch.linalg.eigh(definite) | torch.linalg.svd(w) | torch.linalg.lstsq(w, x.T)
torch.linalg.pinv(w) | torch.linalg.det(w) | torch.fft.rfft(b3) | torch.hstack([x, y])
torch.cov(x) | torch.searchsorted(v, x) | torch.histc(x, 10) | torch.meshgrid(v, v, indexing='ij')
x.scatter_add(1, x.argsort(1), y) | functional.huber_loss(x, y) | slopes(weights, x, y)
torch.func.jacrev(torch.tanh)(v) | z.add_(x, alpha=.1) | z.addcmul_(x, y, value=.1)
z.clamp_(-1, 1) | z.div_(2) | z.lerp_(x, .1) | z.masked_fill_(mask, 0.) | z.square_()
torch.cat([x, y], dim=1) | torch.stack([x, y], dim=0) | x.softmax(dim=-1) | img.flatten(start_dim=1)
x.split([4, 12]) | x.flip((0, 1)) | x.gather(dim=1, index=order) | x.index_select(dim=0, index=i)
z.__setitem__(i, y[:8]) | z.index_put_((i,), y[:8]) | z.index_fill_(0, i, 1.) | x.nonzero()
torch.arange(8, dtype=torch.float32, device='cpu') | torch.randint(0, 5, (4,), device='cpu')
torch.tensor([1., 2.], device='cpu') | torch.zeros_like(x, dtype=torch.float64)
torch.randn_like(x) | torch.full_like(x, 2.) | x.to('cpu', torch.float32) | torch.hann_window(400)
functional.interpolate(img, scale_factor=2) | functional.adaptive_avg_pool2d(img, 3)
functional.fold(functional.unfold(img, 3), (16, 16), 3) | framed()
"""


def world(torch) -> dict:
    """What the calls are made on."""
    torch.manual_seed(0)
    nn, functional = torch.nn, torch.nn.functional
    x, y, w, v = torch.randn(16, 32), torch.randn(16, 32), torch.randn(32, 32), torch.randn(32)
    logits, labels = torch.randn(16, 10), torch.randint(0, 10, (16,))
    b3 = torch.randn(4, 8, 16)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def train():
        sgd.zero_grad()
        functional.cross_entropy(model(x), labels).backward()
        sgd.step()

    def framed():
        bordered = functional.pad(painted, (1, 1, 1, 1), mode="reflect")
        return torch.autograd.grad(bordered.sum(), painted)

    train()
    painted = torch.randn(2, 3, 16, 16, requires_grad=True)
    # the gradients of each example by itself, with respect to weights that they share
    slopes = torch.vmap(torch.func.grad(lambda w, x, y: functional.mse_loss((x @ w).tanh(), y)),
                        in_dims=(None, 0, 0))
    return {
        "torch": torch, "nn": nn, "functional": functional, "x": x, "y": y, "w": w, "v": v,
        "z": x.clone(), "mask": x > 0, "i": torch.randint(0, 16, (8,)), "b3": b3,
        "b4": b3[:, None], "logits": logits, "labels": labels, "chances": logits.softmax(1),
        "img": torch.randn(2, 3, 16, 16), "ids": torch.randint(0, 30, (4, 8)),
        "leaf": torch.randn(16, 32, requires_grad=True), "model": model, "train": train,
        "array": numpy.ones((16, 32), "f4"), "parameters": list(model.parameters()),
        "adam": torch.optim.AdamW(model.parameters(), lr=1e-4), "linear": nn.Linear(32, 32),
        "embedding": nn.Embedding(30, 16), "dropout": nn.Dropout(0.5),
        "batch_norm": nn.BatchNorm2d(3), "layer_norm": nn.LayerNorm(32),
        "cell": nn.LSTMCell(32, 32), "gru": nn.GRU(16, 16, batch_first=True),
        "conv": nn.Conv2d(3, 8, 3, padding=1), "pool": nn.MaxPool2d(2),
        "attention": nn.MultiheadAttention(16, 2, batch_first=True),
        "encoder": nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
        "points": torch.rand(2, 8, 8, 2) * 2 - 1, "bag": nn.EmbeddingBag(30, 16),
        "slopes": slopes, "framed": framed, "order": x.argsort(1),
        "weights": w, "definite": w @ w.T + 10 * torch.eye(32),
        "upsample": nn.Upsample(scale_factor=2), "transposed": nn.ConvTranspose2d(3, 4, 2, 2),
    }


def cases(torch):
    names = world(torch)
    for text in (part.strip() for line in CALLS.strip().splitlines() for part in line.split(" | ")):
        yield text.replace("functional.", "F."), eval(f"lambda: {text}", names), 300


def verdict(ratios: dict[str, float]) -> int:
    """Say how the ratios stand against what is promised; 1 if they fall short."""
    slower = {name: ratio for name, ratio in ratios.items() if ratio < 1}
    mean = peer.geometric_mean(ratios.values())
    print(f"\n{len(ratios)} calls, geometric mean {mean:.2f}  (at least 2); slower than torch:")
    for name, ratio in sorted(slower.items(), key=lambda pair: pair[1]):
        print(f"{ratio:6.2f}  {name}")
    return int(mean < 2)


if __name__ == "__main__":
    sys.exit(peer.main(sys.modules[__name__], __file__))
