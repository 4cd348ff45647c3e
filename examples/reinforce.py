"""Reinforcement learning with its own small world: a pole balanced on a cart.

Policy gradients with a value network as baseline: python reinforce.py [episodes]
"""

import math
import sys

import flambeau as torch
import flambeau.nn as nn
from flambeau.distributions import Categorical

episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 400
torch.manual_seed(0)


class Cart:
    """Push left or right; it ends when the pole leans too far or the cart leaves the track."""

    def reset(self):
        self.state = (torch.rand(4) * 0.1 - 0.05).tolist()
        return torch.tensor(self.state)

    def step(self, action):
        x, speed, angle, turning = self.state
        force = 10.0 if action else -10.0
        pushed = (force + 0.05 * turning**2 * math.sin(angle)) / 1.1
        fall = (9.8 * math.sin(angle) - math.cos(angle) * pushed) / (
            0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
        gain = pushed - 0.05 * fall * math.cos(angle) / 1.1
        self.state = [x + 0.02 * speed, speed + 0.02 * gain, angle + 0.02 * turning,
                      turning + 0.02 * fall]
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return torch.tensor(self.state), 1.0, done


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh())
        self.policy, self.value = nn.Linear(64, 2), nn.Linear(64, 1)

    def forward(self, state):
        h = self.body(state)
        return Categorical(logits=self.policy(h)), self.value(h).squeeze(-1)


def play(agent, world, longest=300):
    """One episode: log-probabilities of what was done, values that were expected, rewards."""
    state, logs, values, rewards = world.reset(), [], [], []
    for _ in range(longest):
        choice, value = agent(state)
        action = choice.sample()
        state, reward, done = world.step(action.item())
        logs.append(choice.log_prob(action))
        values.append(value)
        rewards.append(reward)
        if done:
            break
    return torch.stack(logs), torch.stack(values), rewards


def returns_of(rewards, discount=0.99):
    total, found = 0.0, []
    for reward in reversed(rewards):
        total = reward + discount * total
        found.append(total)
    return torch.tensor(found[::-1])


agent, world = Agent(), Cart()
optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3)
lately = 0.0
for episode in range(1, episodes + 1):
    logs, values, rewards = play(agent, world)
    returns = returns_of(rewards)
    surprise = returns - values.detach()
    surprise = (surprise - surprise.mean()) / (surprise.std() + 1e-6) if len(rewards) > 1 \
        else surprise
    loss = -(logs * surprise).mean() + 0.01 * nn.functional.smooth_l1_loss(values, returns)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
    optimizer.step()
    lately = 0.95 * lately + 0.05 * len(rewards) if episode > 1 else len(rewards)
    if episode % max(1, episodes // 8) == 0:
        print(f"episode {episode:4}  steps balanced lately {lately:6.1f} of 300")
