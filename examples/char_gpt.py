"""A character GPT on Python's standard library, and what it writes: python char_gpt.py [steps]"""

import sys

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau.datasets import Characters, load_python_text

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500
block, width, heads, layers, batch = 64, 96, 4, 3, 32
torch.manual_seed(0)
data = Characters(load_python_text(300_000), block)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, heads, C // heads).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        # each letter looks at itself and at what stands before it
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(block, width)
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters)

    def forward(self, letters):
        places = torch.arange(letters.shape[1])
        return self.head(self.norm(self.blocks(self.letter(letters) + self.place(places))))


@torch.no_grad()
def write(model, start, length, temperature=0.8, top_k=20):
    text = data.encode(start)[None]
    for _ in range(length):
        logits = model(text[:, -block:])[:, -1] / temperature
        unlikely = logits < logits.topk(top_k).values[:, -1:]
        chances = F.softmax(logits.masked_fill(unlikely, -torch.inf), dim=-1)
        text = torch.cat([text, torch.multinomial(chances, 1)], dim=1)
    return data.decode(text[0])


model = GPT(len(data.vocabulary))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.99))
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
for step in range(1, steps + 1):
    starts = torch.randint(len(data), (batch, 1))
    rows = data.data[starts + torch.arange(block + 1)]
    logits = model(rows[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if step % max(1, steps // 5) == 0:
        print(f"\nstep {step}  loss {loss.item():.3f}\n{write(model, chr(10) + 'def ', 100)}")
