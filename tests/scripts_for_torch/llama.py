"""RoPE, RMSNorm, SwiGLU, grouped-query attention, KV cache, MoE: a llama-like model in one file."""

from dataclasses import dataclass
from typing import Optional, Tuple
import math, torch, torch.nn.functional as F
from torch import nn


@dataclass
class Args:
    dim: int = 32
    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: Optional[int] = 2
    vocab_size: int = 40
    multiple_of: int = 8
    norm_eps: float = 1e-5
    max_seq_len: int = 32
    n_experts: int = 3


class RMSNorm(nn.Module):
    def __init__(self, d, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.weight


def precompute_freqs_cis(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    return torch.polar(torch.ones(end, dim // 2), torch.outer(torch.arange(end), freqs).float())


def apply_rotary_emb(xq, xk, f):
    xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
    f = f.view(*[d if i == 1 or i == xq_.ndim - 1 else 1 for i, d in enumerate(xq_.shape)])
    return torch.view_as_real(xq_ * f).flatten(3).type_as(xq), torch.view_as_real(xk_ * f).flatten(
        3
    ).type_as(xk)


def repeat_kv(x, n):
    bs, sl, h, d = x.shape
    return x if n == 1 else x[:, :, :, None, :].expand(bs, sl, h, n, d).reshape(bs, sl, h * n, d)


class Attention(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.nh, self.nkv = a.n_heads, a.n_kv_heads or a.n_heads
        self.rep = self.nh // self.nkv
        self.hd = a.dim // a.n_heads
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(a.dim, self.nh * self.hd, bias=False),
            nn.Linear(a.dim, self.nkv * self.hd, bias=False),
            nn.Linear(a.dim, self.nkv * self.hd, bias=False),
            nn.Linear(self.nh * self.hd, a.dim, bias=False),
        )
        self.register_buffer(
            "cache_k", torch.zeros(4, a.max_seq_len, self.nkv, self.hd), persistent=False
        )
        self.register_buffer(
            "cache_v", torch.zeros(4, a.max_seq_len, self.nkv, self.hd), persistent=False
        )

    def forward(self, x, start, f, mask, use_cache=False):
        b, s, _ = x.shape
        q, k, v = (
            self.wq(x).view(b, s, self.nh, self.hd),
            self.wk(x).view(b, s, self.nkv, self.hd),
            self.wv(x).view(b, s, self.nkv, self.hd),
        )
        q, k = apply_rotary_emb(q, k, f)
        if use_cache:
            self.cache_k[:b, start : start + s] = k
            self.cache_v[:b, start : start + s] = v
            k, v = self.cache_k[:b, : start + s], self.cache_v[:b, : start + s]
        k, v = repeat_kv(k, self.rep), repeat_kv(v, self.rep)
        att = torch.einsum("bshd,bthd->bhst", q, k) / math.sqrt(self.hd)
        if mask is not None:
            att = att + mask
        att = F.softmax(att.float(), dim=-1).type_as(q)
        return self.wo(torch.einsum("bhst,bthd->bshd", att, v).reshape(b, s, -1))


class FF(nn.Module):
    def __init__(self, d, h, m):
        super().__init__()
        h = m * ((int(2 * h / 3) + m - 1) // m)
        self.w1, self.w2, self.w3 = (
            nn.Linear(d, h, bias=False),
            nn.Linear(h, d, bias=False),
            nn.Linear(d, h, bias=False),
        )

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class MoE(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.gate = nn.Linear(a.dim, a.n_experts, bias=False)
        self.experts = nn.ModuleList(
            FF(a.dim, 4 * a.dim, a.multiple_of) for _ in range(a.n_experts)
        )

    def forward(self, x):
        flat = x.view(-1, x.shape[-1])
        w, sel = torch.topk(self.gate(flat), 2)
        w = F.softmax(w, dim=1, dtype=torch.float).to(x.dtype)
        out = torch.zeros_like(flat)
        for i, e in enumerate(self.experts):
            b, n = torch.where(sel == i)
            out[b] += w[b, n, None] * e(flat[b])
        return out.view_as(x)


class Block(nn.Module):
    def __init__(self, a, i):
        super().__init__()
        self.attention = Attention(a)
        self.feed_forward = MoE(a) if i % 2 else FF(a.dim, 4 * a.dim, a.multiple_of)
        self.an, self.fn = RMSNorm(a.dim, a.norm_eps), nn.RMSNorm(a.dim, eps=a.norm_eps)

    def forward(self, x, *r, **k):
        h = x + self.attention(self.an(x), *r, **k)
        return h + self.feed_forward(self.fn(h))


class Llama(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.tok = nn.Embedding(a.vocab_size, a.dim)
        self.layers = torch.nn.ModuleList()
        for i in range(a.n_layers):
            self.layers.append(Block(a, i))
        self.norm = RMSNorm(a.dim, a.norm_eps)
        self.output = nn.Linear(a.dim, a.vocab_size, bias=False)
        self.freqs = precompute_freqs_cis(a.dim // a.n_heads, a.max_seq_len * 2)

    def forward(self, t, start=0, use_cache=False):
        b, s = t.shape
        h = self.tok(t)
        f = self.freqs[start : start + s]
        mask = None
        if s > 1:
            mask = torch.full((s, s), float("-inf"))
            mask = torch.triu(mask, diagonal=1)
            mask = torch.hstack([torch.zeros((s, start)), mask]).type_as(h)
        for l in self.layers:
            h = l(h, start, f, mask, use_cache=use_cache)
        return self.output(self.norm(h)).float()


def sample_top_p(probs, p):
    ps, pi = torch.sort(probs, dim=-1, descending=True)
    cs = torch.cumsum(ps, dim=-1)
    ps[cs - ps > p] = 0.0
    ps.div_(ps.sum(dim=-1, keepdim=True))
    return torch.gather(pi, -1, torch.multinomial(ps, num_samples=1))


torch.manual_seed(1)
model = Llama(Args())
print(sum(p.numel() for p in model.parameters()))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1, betas=(0.9, 0.95))
data = torch.randint(0, 40, (64,)).repeat(4)
for i in range(10):
    ix = torch.randint(0, 200, (4,))
    x = torch.stack([data[j : j + 16] for j in ix])
    y = torch.stack([data[j + 1 : j + 17] for j in ix])
    loss = F.cross_entropy(model(x).transpose(1, 2), y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    n = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    print(f"{i} loss {loss:.4f} norm {n:.4f}")
model.eval()
with torch.inference_mode():
    toks = data[:5][None].repeat(2, 1)
    full = model(toks)
    start = 0
    logits = model(toks, 0, True)
    print(torch.allclose(full, logits, atol=1e-5))
    for cur in range(5, 12):
        nxt = sample_top_p(torch.softmax(logits[:, -1] / 0.8, -1), 0.9)
        toks = torch.cat([toks, nxt], 1)
        logits = model(nxt, cur, True)
    print(toks, torch.allclose(model(toks)[:, -1], logits[:, -1], atol=1e-4))
half = Llama(Args()).to(torch.bfloat16)
print(half(torch.arange(8)[None]).dtype, next(half.parameters()).dtype)
