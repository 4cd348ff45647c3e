"""Names, one character at a time: bigram, RNN, GRU and transformer models, after many tutorials."""
import argparse
import sys
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F
from torch.utils.data import Dataset
from torch.utils.data.dataloader import DataLoader
from torch.utils.tensorboard import SummaryWriter

NAMES = """anna maria elena sofia julia laura clara emma mia lea lena lara nina tina paula
marta greta irma alma selma vera eva ella stella bella carla karla lola viola fiona leona
mona ramona simona romina marina karina carina martina bettina""".split()


@dataclass
class ModelConfig:
    block_size: int = None
    vocab_size: int = None
    n_layer: int = 2
    n_embd: int = 16
    n_embd2: int = 16
    n_head: int = 2


class Bigram(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros((config.vocab_size, config.vocab_size)))

    def forward(self, idx, targets=None):
        logits = self.logits[idx]
        return logits, loss_of(logits, targets)


class RNNCell(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.xh_to_h = nn.Linear(config.n_embd + config.n_embd2, config.n_embd2)

    def forward(self, xt, hprev):
        return F.tanh(self.xh_to_h(torch.cat([xt, hprev], dim=1)))


class GRUCell(nn.Module):
    def __init__(self, config):
        super().__init__()
        n = config.n_embd + config.n_embd2
        self.xh_to_z = nn.Linear(n, config.n_embd2)
        self.xh_to_r = nn.Linear(n, config.n_embd2)
        self.xh_to_hbar = nn.Linear(n, config.n_embd2)

    def forward(self, xt, hprev):
        xh = torch.cat([xt, hprev], dim=1)
        r, z = torch.sigmoid(self.xh_to_r(xh)), F.sigmoid(self.xh_to_z(xh))
        hbar = torch.tanh(self.xh_to_hbar(torch.cat([xt, r * hprev], dim=1)))
        return (1 - z) * hprev + z * hbar


class RNN(nn.Module):
    def __init__(self, config, cell_type):
        super().__init__()
        self.start = nn.Parameter(torch.zeros(1, config.n_embd2))
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.cell = {"rnn": RNNCell, "gru": GRUCell}[cell_type](config)
        self.lm_head = nn.Linear(config.n_embd2, config.vocab_size)

    def forward(self, idx, targets=None):
        b, t = idx.size()
        emb, hprev, hiddens = self.wte(idx), self.start.expand((b, -1)), []
        for i in range(t):
            hprev = self.cell(emb[:, i, :], hprev)
            hiddens.append(hprev)
        logits = self.lm_head(torch.stack(hiddens, 1))
        return logits, loss_of(logits, targets)


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Parameter(torch.randn(config.block_size, config.n_embd) * 0.02)
        layer = nn.TransformerEncoderLayer(config.n_embd, config.n_head, 4 * config.n_embd,
                                           dropout=0.0, activation="gelu", batch_first=True,
                                           norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, config.n_layer, enable_nested_tensor=False)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, idx, targets=None):
        t = idx.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(t)
        x = self.encoder(self.wte(idx) + self.wpe[:t], mask=mask, is_causal=True)
        logits = self.lm_head(x)
        return logits, loss_of(logits, targets)


def loss_of(logits, targets):
    if targets is None:
        return None
    return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class CharDataset(Dataset):
    def __init__(self, words, chars, max_word_length):
        self.words, self.max_word_length = words, max_word_length
        self.stoi = {ch: i + 1 for i, ch in enumerate(chars)}
        self.itos = {i: s for s, i in self.stoi.items()}

    def __len__(self):
        return len(self.words)

    def decode(self, ix):
        return "".join(self.itos[i] for i in ix)

    def __getitem__(self, idx):
        ix = torch.tensor([self.stoi[w] for w in self.words[idx]], dtype=torch.long)
        x = torch.zeros(self.max_word_length + 1, dtype=torch.long)
        y = torch.zeros(self.max_word_length + 1, dtype=torch.long)
        x[1:1 + len(ix)] = ix
        y[:len(ix)] = ix
        y[len(ix) + 1:] = -1
        return x, y


class InfiniteDataLoader:
    def __init__(self, dataset, **kwargs):
        sampler = torch.utils.data.RandomSampler(dataset, replacement=True, num_samples=int(1e6))
        self.loader = DataLoader(dataset, sampler=sampler, **kwargs)
        self.iter = iter(self.loader)

    def next(self):
        try:
            return next(self.iter)
        except StopIteration:
            self.iter = iter(self.loader)
            return next(self.iter)


@torch.no_grad()
def generate(model, idx, steps, block_size, do_sample=True):
    for _ in range(steps):
        logits, _ = model(idx if idx.size(1) <= block_size else idx[:, -block_size:])
        probs = F.softmax(logits[:, -1, :], dim=-1)
        if do_sample:
            nxt = torch.multinomial(probs, num_samples=1)
        else:
            _, nxt = torch.topk(probs, k=1, dim=-1)
        idx = torch.cat((idx, nxt), dim=1)
    return idx


@torch.inference_mode()
def evaluate(model, dataset):
    model.eval()
    losses = [model(*batch)[1].item() for batch in DataLoader(dataset, batch_size=16)]
    model.train()
    return torch.tensor(losses).mean().item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="names")
    parser.add_argument("--type", default="transformer")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--work-dir", "-o", default="out")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    print(vars(args))
    torch.manual_seed(3407)
    torch.cuda.manual_seed_all(3407)
    writer = SummaryWriter(log_dir=args.work_dir)

    chars = sorted(set("".join(NAMES)))
    longest = max(map(len, NAMES))
    rp = torch.randperm(len(NAMES)).tolist()
    train = CharDataset([NAMES[i] for i in rp[:-8]], chars, longest)
    test = CharDataset([NAMES[i] for i in rp[-8:]], chars, longest)
    config = ModelConfig(vocab_size=len(chars) + 1, block_size=longest + 1)
    model = {"bigram": Bigram, "transformer": Transformer, "rnn": lambda c: RNN(c, "rnn"),
             "gru": lambda c: RNN(c, "gru")}[args.type](config)
    model.to(args.device)
    print(f"model #params: {sum(p.numel() for p in model.parameters())}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01,
                                  betas=(0.9, 0.99), eps=1e-8)
    loader = InfiniteDataLoader(train, batch_size=16, pin_memory=True, num_workers=0)
    first = None
    for step in range(args.steps):
        X, Y = (t.to(args.device) for t in loader.next())
        logits, loss = model(X, Y)
        model.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        first = first or loss.item()
        writer.add_scalar("Loss/train", loss.item(), step)
        if args.device.startswith("cuda"):
            torch.cuda.synchronize()
    writer.flush()
    writer.close()
    print(f"loss {first:.4f} -> {loss.item():.4f}, test {evaluate(model, test):.4f}")
    start = torch.zeros(4, 1, dtype=torch.long).to(args.device)
    for row in generate(model, start, longest, config.block_size).tolist():
        row = row[1:]
        print(train.decode(row[:row.index(0)] if 0 in row else row))
    sys.exit(0 if loss.item() < first else 1)
