"""An LSTM that learns to continue text, its state carried along: python lstm_text.py [steps]"""

import sys

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau.datasets import Characters, load_python_text

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
rows, length = 32, 48
torch.manual_seed(0)
data = Characters(load_python_text(200_000), length)


class Writer(nn.Module):
    def __init__(self, letters, width=128):
        super().__init__()
        self.embed = nn.Embedding(letters, 32)
        self.lstm = nn.LSTM(32, width, batch_first=True)
        self.head = nn.Linear(width, letters)

    def forward(self, letters, state=None):
        out, state = self.lstm(self.embed(letters), state)
        return self.head(out), state


model = Writer(len(data.vocabulary))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

# 32 streams of text, read side by side
streams = data.data[: len(data.data) // rows * rows].view(rows, -1)
state, place = None, 0
for step in range(1, steps + 1):
    if place + length + 1 > streams.shape[1]:
        state, place = None, 0
    piece = streams[:, place:place + length + 1]
    place += length
    logits, state = model(piece[:, :-1], state)
    # the state goes on, its history does not: gradients reach back `length` letters
    state = tuple(part.detach() for part in state)
    loss = F.cross_entropy(logits.transpose(1, 2), piece[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % max(1, steps // 6) == 0:
        print(f"step {step:4}  loss {loss.item():.3f}  perplexity {loss.exp().item():.1f}")

text, state = data.encode("\nimport ")[None], None
letter = text
with torch.no_grad():
    for _ in range(120):
        logits, state = model(letter, state)
        letter = torch.multinomial(F.softmax(logits[:, -1] / 0.7, -1), 1)
        text = torch.cat([text, letter], 1)
print(data.decode(text[0]))
