"""Sequence to sequence with attention: packed sequences, teacher forcing."""
from io import open
import unicodedata, re, random, math
import torch
import torch.nn as nn
from torch import optim
import torch.nn.functional as F
from torch.nn.utils.rnn import (
    pack_padded_sequence,
    pad_packed_sequence,
    pad_sequence,
    pack_sequence,
)
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SOS_token, EOS_token, PAD = 1, 2, 0
random.seed(0)
torch.manual_seed(0)


class Lang:
    def __init__(self, name):
        self.name = name
        self.word2index = {}
        self.index2word = {0: "PAD", 1: "SOS", 2: "EOS"}
        self.n_words = 3

    def addSentence(self, s):
        for w in s.split(" "):
            if w not in self.word2index:
                self.word2index[w] = self.n_words
                self.index2word[self.n_words] = w
                self.n_words += 1


pairs = [
    ("je suis la", "i am here"),
    ("tu es grand", "you are tall"),
    ("il est tres petit", "he is very small"),
    ("nous sommes ici", "we are here"),
    ("vous etes la", "you are there"),
    ("elle est grande", "she is tall"),
] * 4
src, tgt = Lang("fra"), Lang("eng")
for a, b in pairs:
    src.addSentence(a)
    tgt.addSentence(b)


class EncoderRNN(nn.Module):
    def __init__(self, n, hid, dropout_p=0.1):
        super().__init__()
        self.embedding = nn.Embedding(n, hid, padding_idx=PAD)
        self.gru = nn.GRU(hid, hid, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hid, hid)
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, x, lengths):
        emb = self.dropout(self.embedding(x))
        packed = pack_padded_sequence(emb, lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, h = self.gru(packed)
        out, lens = pad_packed_sequence(out, batch_first=True)
        h = torch.tanh(self.fc(torch.cat((h[-2, :, :], h[-1, :, :]), dim=1)))
        return self.fc(out), h.unsqueeze(0)


class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.Wa, self.Ua, self.Va = (
            nn.Linear(hidden_size, hidden_size),
            nn.Linear(hidden_size, hidden_size),
            nn.Linear(hidden_size, 1),
        )

    def forward(self, query, keys, mask):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys)))
        scores = scores.squeeze(2).unsqueeze(1)
        scores.masked_fill_(~mask.unsqueeze(1), -1e10)
        weights = F.softmax(scores, dim=-1)
        return torch.bmm(weights, keys), weights


class AttnDecoderRNN(nn.Module):
    def __init__(self, hid, n):
        super().__init__()
        self.embedding = nn.Embedding(n, hid)
        self.attention = BahdanauAttention(hid)
        self.gru = nn.GRU(2 * hid, hid, batch_first=True)
        self.out = nn.Linear(hid, n)
        self.dropout = nn.Dropout(0.1)

    def forward(self, enc, h, mask, target_tensor=None, max_len=6):
        dec_in = torch.empty(enc.size(0), 1, dtype=torch.long, device=device).fill_(SOS_token)
        outs, attns = [], []
        for i in range(max_len if target_tensor is None else target_tensor.size(1)):
            emb = self.dropout(self.embedding(dec_in))
            context, w = self.attention(h.permute(1, 0, 2), enc, mask)
            o, h = self.gru(torch.cat((emb, context), dim=2), h)
            o = self.out(o)
            outs.append(o)
            attns.append(w)
            if target_tensor is not None and random.random() < 0.5:
                dec_in = target_tensor[:, i].unsqueeze(1)
            else:
                _, topi = o.topk(1)
                dec_in = topi.squeeze(-1).detach()
        return F.log_softmax(torch.cat(outs, dim=1), dim=-1), h, torch.cat(attns, dim=1)


def enc_s(lang, s):
    return torch.tensor(
        [lang.word2index[w] for w in s.split(" ")] + [EOS_token], dtype=torch.long, device=device
    )


def collate(batch):
    xs = [enc_s(src, a) for a, _ in batch]
    ys = [enc_s(tgt, b) for _, b in batch]
    return (
        pad_sequence(xs, batch_first=True, padding_value=PAD),
        torch.as_tensor([len(x) for x in xs]),
        pad_sequence(ys, True, PAD),
    )


loader = DataLoader(pairs, batch_size=6, shuffle=True, collate_fn=collate)
encoder, decoder = (
    EncoderRNN(src.n_words, 16).to(device),
    AttnDecoderRNN(16, tgt.n_words).to(device),
)
eo, do = optim.Adam(encoder.parameters(), lr=0.01), optim.Adam(decoder.parameters(), lr=0.01)
criterion = nn.NLLLoss(ignore_index=PAD)
for epoch in range(1, 6):
    total = 0
    for x, lens, y in loader:
        eo.zero_grad()
        do.zero_grad()
        e, h = encoder(x, lens)
        out, _, _ = decoder(e, h, x != PAD, y)
        loss = criterion(out.view(-1, out.size(-1)), y.view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(encoder.parameters(), 1)
        nn.utils.clip_grad_norm_(decoder.parameters(), 1, norm_type=2)
        eo.step()
        do.step()
        total += loss.item()
    print("(%d %d%%) %.4f" % (epoch, epoch / 5 * 100, total / len(loader)))
encoder.eval()
decoder.eval()
with torch.no_grad():
    for a, b in pairs[:3]:
        x = enc_s(src, a).view(1, -1)
        e, h = encoder(x, torch.tensor([x.size(1)]))
        out, _, att = decoder(e, h, x != PAD)
        _, topi = out.topk(1)
        print(
            ">",
            a,
            "=",
            b,
            "<",
            " ".join(tgt.index2word[i.item()] for i in topi.squeeze()),
            tuple(att.shape),
        )
p = pack_sequence([torch.arange(3.0), torch.arange(2.0)])
print(p.data, p.batch_sizes, type(p).__name__)
