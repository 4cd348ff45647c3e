"""A recursive network: the graph of each example is its own tree: python tree_network.py [steps]

It learns the value (mod 2) of expressions such as ((1 or 0) and (not 1)) from their trees.
"""

import random
import sys

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1200
torch.manual_seed(0)
random.seed(0)

RULES = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}


def grow(depth):
    """A random tree: a number, or (op, left, right)."""
    if depth == 0 or random.random() < 0.2:
        return random.randint(0, 1)
    return random.choice(list(RULES)), grow(depth - 1), grow(depth - 1)


def value(tree):
    return tree if isinstance(tree, int) else RULES[tree[0]](value(tree[1]), value(tree[2]))


class TreeNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.leaves = nn.Embedding(2, width)
        self.joins = nn.ModuleDict({
            name: nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width),
                                nn.Tanh()) for name in RULES})
        self.answer = nn.Linear(width, 2)

    def meaning(self, tree):
        if isinstance(tree, int):
            return self.leaves.weight[tree]
        name, left, right = tree
        return self.joins[name](torch.cat([self.meaning(left), self.meaning(right)]))

    def forward(self, tree):
        return self.answer(self.meaning(tree))


model = TreeNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
right, count = 0, 0
for step in range(1, steps + 1):
    loss = torch.zeros(())
    for tree in (grow(3) for _ in range(8)):
        logits, wanted = model(tree), value(tree)
        loss = loss + F.cross_entropy(logits[None], torch.tensor([wanted])) / 8
        right, count = right + int(logits.argmax() == wanted), count + 1
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % max(1, steps // 6) == 0:
        print(f"step {step:5}  loss {loss.item():.3f}  right lately {right / count:.1%}")
        right = count = 0

with torch.no_grad():
    deeper = [grow(6) for _ in range(200)]
    found = sum(int(model(tree).argmax()) == value(tree) for tree in deeper)
print(f"trees twice as deep as any it has seen: {found / 200:.1%} right")
