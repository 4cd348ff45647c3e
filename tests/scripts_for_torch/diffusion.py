"""Denoising diffusion on small pictures: U-Net with linear attention, EMA, sampling."""
import math
import copy
from functools import partial
from collections import namedtuple
import torch
from torch import nn, einsum
import torch.nn.functional as F
from torch.optim import Adam

ModelPrediction = namedtuple("ModelPrediction", ["pred_noise", "pred_x_start"])


def exists(x):
    return x is not None


def default(val, d):
    return val if exists(val) else d() if callable(d) else d


def extract(a, t, x_shape):
    b, *_ = t.shape
    out = a.gather(-1, t)
    return out.reshape(b, *((1,) * (len(x_shape) - 1)))


def cosine_beta_schedule(timesteps, s=0.008):
    steps = timesteps + 1
    t = torch.linspace(0, timesteps, steps, dtype=torch.float64) / timesteps
    alphas_cumprod = torch.cos((t + s) / (1 + s) * math.pi * 0.5) ** 2
    alphas_cumprod = alphas_cumprod / alphas_cumprod[0]
    betas = 1 - (alphas_cumprod[1:] / alphas_cumprod[:-1])
    return torch.clip(betas, 0, 0.999)


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim, theta=10000):
        super().__init__()
        self.dim, self.theta = dim, theta

    def forward(self, x):
        half_dim = self.dim // 2
        emb = math.log(self.theta) / (half_dim - 1)
        emb = torch.exp(torch.arange(half_dim, device=x.device) * -emb)
        emb = x[:, None] * emb[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = dim**0.5
        self.g = nn.Parameter(torch.ones(1, dim, 1, 1))

    def forward(self, x):
        return F.normalize(x, dim=1) * self.g * self.scale


class Block(nn.Module):
    def __init__(self, dim, dim_out, groups=4):
        super().__init__()
        self.proj = nn.Conv2d(dim, dim_out, 3, padding=1)
        self.norm = nn.GroupNorm(groups, dim_out)
        self.act = nn.SiLU()

    def forward(self, x, scale_shift=None):
        x = self.norm(self.proj(x))
        if exists(scale_shift):
            scale, shift = scale_shift
            x = x * (scale + 1) + shift
        return self.act(x)


class ResnetBlock(nn.Module):
    def __init__(self, dim, dim_out, *, time_emb_dim=None):
        super().__init__()
        self.mlp = (
            nn.Sequential(nn.SiLU(), nn.Linear(time_emb_dim, dim_out * 2))
            if exists(time_emb_dim)
            else None
        )
        self.block1, self.block2 = Block(dim, dim_out), Block(dim_out, dim_out)
        self.res_conv = nn.Conv2d(dim, dim_out, 1) if dim != dim_out else nn.Identity()

    def forward(self, x, time_emb=None):
        scale_shift = None
        if exists(self.mlp) and exists(time_emb):
            time_emb = self.mlp(time_emb)[..., None, None]
            scale_shift = time_emb.chunk(2, dim=1)
        h = self.block1(x, scale_shift=scale_shift)
        h = self.block2(h)
        return h + self.res_conv(x)


class LinearAttention(nn.Module):
    def __init__(self, dim, heads=2, dim_head=8):
        super().__init__()
        self.scale, self.heads = dim_head**-0.5, heads
        hidden = dim_head * heads
        self.norm = RMSNorm(dim)
        self.to_qkv = nn.Conv2d(dim, hidden * 3, 1, bias=False)
        self.to_out = nn.Sequential(nn.Conv2d(hidden, dim, 1), RMSNorm(dim))

    def forward(self, x):
        b, c, h, w = x.shape
        x = self.norm(x)
        q, k, v = map(lambda t: t.reshape(b, self.heads, -1, h * w), self.to_qkv(x).chunk(3, dim=1))
        q, k = q.softmax(dim=-2), k.softmax(dim=-1)
        q = q * self.scale
        context = torch.einsum("b h d n, b h e n -> b h d e", k, v)
        out = torch.einsum("b h d e, b h d n -> b h e n", context, q)
        return self.to_out(out.reshape(b, -1, h, w))


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.init_conv = nn.Conv2d(1, dim, 7, padding=3)
        td = dim * 4
        self.time_mlp = nn.Sequential(
            SinusoidalPosEmb(dim), nn.Linear(dim, td), nn.GELU(), nn.Linear(td, td)
        )
        rb = partial(ResnetBlock, time_emb_dim=td)
        self.d1, self.a1 = rb(dim, dim), LinearAttention(dim)
        self.down = nn.Conv2d(dim, dim * 2, 4, 2, 1)
        self.mid = rb(dim * 2, dim * 2)
        self.up = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(dim * 2, dim, 3, padding=1)
        )
        self.u1 = rb(dim * 2, dim)
        self.final = nn.Conv2d(dim, 1, 1)

    def forward(self, x, time):
        x = self.init_conv(x)
        t = self.time_mlp(time)
        h = self.d1(x, t)
        h = self.a1(h) + h
        y = self.mid(self.down(h), t)
        y = self.up(y)
        return self.final(self.u1(torch.cat((y, h), dim=1), t))


class GaussianDiffusion(nn.Module):
    def __init__(self, model, *, image_size, timesteps=20):
        super().__init__()
        self.model, self.image_size = model, image_size
        betas = cosine_beta_schedule(timesteps)
        alphas = 1.0 - betas
        alphas_cumprod = torch.cumprod(alphas, dim=0)
        alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
        self.num_timesteps = int(betas.shape[0])
        register_buffer = lambda name, val: self.register_buffer(name, val.to(torch.float32))
        register_buffer("betas", betas)
        register_buffer("alphas_cumprod", alphas_cumprod)
        register_buffer("sqrt_alphas_cumprod", torch.sqrt(alphas_cumprod))
        register_buffer("sqrt_one_minus_alphas_cumprod", torch.sqrt(1.0 - alphas_cumprod))
        register_buffer("sqrt_recip_alphas_cumprod", torch.sqrt(1.0 / alphas_cumprod))
        register_buffer("sqrt_recipm1_alphas_cumprod", torch.sqrt(1.0 / alphas_cumprod - 1))
        posterior_variance = betas * (1.0 - alphas_cumprod_prev) / (1.0 - alphas_cumprod)
        register_buffer(
            "posterior_log_variance_clipped", torch.log(posterior_variance.clamp(min=1e-20))
        )
        register_buffer(
            "posterior_mean_coef1", betas * torch.sqrt(alphas_cumprod_prev) / (1.0 - alphas_cumprod)
        )
        register_buffer(
            "posterior_mean_coef2",
            (1.0 - alphas_cumprod_prev) * torch.sqrt(alphas) / (1.0 - alphas_cumprod),
        )
        snr = alphas_cumprod / (1 - alphas_cumprod)
        maybe_clipped_snr = snr.clone()
        maybe_clipped_snr.clamp_(max=5)
        register_buffer("loss_weight", maybe_clipped_snr / snr)

    @property
    def device(self):
        return self.betas.device

    def q_sample(self, x_start, t, noise=None):
        noise = default(noise, lambda: torch.randn_like(x_start))
        return (
            extract(self.sqrt_alphas_cumprod, t, x_start.shape) * x_start
            + extract(self.sqrt_one_minus_alphas_cumprod, t, x_start.shape) * noise
        )

    @torch.inference_mode()
    def p_sample(self, x, t: int):
        b = x.shape[0]
        batched = torch.full((b,), t, device=self.device, dtype=torch.long)
        eps = self.model(x, batched)
        x0 = (
            extract(self.sqrt_recip_alphas_cumprod, batched, x.shape) * x
            - extract(self.sqrt_recipm1_alphas_cumprod, batched, x.shape) * eps
        )
        x0.clamp_(-1.0, 1.0)
        mean = (
            extract(self.posterior_mean_coef1, batched, x.shape) * x0
            + extract(self.posterior_mean_coef2, batched, x.shape) * x
        )
        noise = torch.randn_like(x) if t > 0 else 0.0
        return (
            mean
            + (0.5 * extract(self.posterior_log_variance_clipped, batched, x.shape)).exp() * noise
        )

    @torch.inference_mode()
    def sample(self, n=2):
        img = torch.randn((n, 1, self.image_size, self.image_size), device=self.device)
        for t in reversed(range(0, self.num_timesteps)):
            img = self.p_sample(img, t)
        return (img + 1) * 0.5

    def forward(self, img):
        (
            b,
            c,
            h,
            w,
            device,
        ) = *img.shape, img.device
        t = torch.randint(0, self.num_timesteps, (b,), device=device).long()
        noise = torch.randn_like(img)
        x = self.q_sample(x_start=img * 2 - 1, t=t, noise=noise)
        out = self.model(x, t)
        loss = F.mse_loss(out, noise, reduction="none")
        loss = loss.flatten(1).mean(dim=1)
        loss = loss * extract(self.loss_weight, t, loss.shape)
        return loss.mean()


class EMA:
    def __init__(self, beta):
        self.beta = beta

    def update_model_average(self, ma, cur):
        for c, m in zip(cur.parameters(), ma.parameters()):
            m.data = m.data * self.beta + (1 - self.beta) * c.data


torch.manual_seed(0)
diff = GaussianDiffusion(Net(), image_size=16)
ema_model = copy.deepcopy(diff)
ema = EMA(0.9)
opt = Adam(diff.parameters(), lr=2e-3, betas=(0.9, 0.99))
data = (torch.rand(32, 1, 16, 16) > 0.5).float()
for step in range(12):
    total = 0.0
    for _ in range(2):
        x = data[torch.randperm(32)[:8]]
        loss = diff(x) / 2
        total += loss.item()
        loss.backward()
    torch.nn.utils.clip_grad_norm_(diff.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    ema.update_model_average(ema_model, diff)
    print(f"loss: {total:.4f}")
img = ema_model.sample(2)
print(img.shape, f"{img.mean().item():.3f} {img.std().item():.3f}")
