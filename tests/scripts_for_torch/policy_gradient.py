"""REINFORCE, A2C and PPO in one file on a small environment, with torch.distributions."""

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions import Categorical, Normal, Independent, kl_divergence
from torch.distributions.normal import Normal as N2


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, n_obs=3, n_act=2, continuous=False):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(n_obs, 16)), nn.Tanh(), layer_init(nn.Linear(16, 1), std=1.0)
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(n_obs, 16)), nn.Tanh(), layer_init(nn.Linear(16, n_act), std=0.01)
        )
        self.actor_logstd = nn.Parameter(torch.zeros(1, n_act)) if continuous else None

    def get_value(self, x):
        return self.critic(x)

    def dist(self, x):
        logits = self.actor(x)
        if self.actor_logstd is None:
            return Categorical(logits=logits)
        return Independent(Normal(logits, torch.exp(self.actor_logstd.expand_as(logits))), 1)

    def get_action_and_value(self, x, action=None):
        probs = self.dist(x)
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


class VecEnv:
    def __init__(self, n):
        self.n = n
        self.rng = np.random.default_rng(0)
        self.reset()

    def reset(self):
        self.s = self.rng.normal(size=(self.n, 3)).astype(np.float32)
        self.t = 0
        return self.s

    def step(self, a):
        a = a.reshape(self.n, -1)[:, 0]
        r = -np.abs(self.s[:, 0]) + np.tanh(a * self.s[:, 1]) * 0.5
        self.s = (
            0.9 * self.s + 0.1 * a[:, None] + 0.1 * self.rng.normal(size=self.s.shape)
        ).astype(np.float32)
        self.t += 1
        return self.s, r, np.full(self.n, self.t % 8 == 0)


torch.manual_seed(1)
torch.backends.cudnn.deterministic = True
device = torch.device("cpu")
num_steps, num_envs = 16, 4
for continuous in (False, True):
    agent = Agent(continuous=continuous).to(device)
    optimizer = optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
    envs = VecEnv(num_envs)
    obs = torch.zeros((num_steps, num_envs, 3)).to(device)
    actions = torch.zeros((num_steps, num_envs) + ((2,) if continuous else ()))
    logprobs, rewards, dones, values = (torch.zeros((num_steps, num_envs)) for _ in range(4))
    next_obs = torch.Tensor(envs.reset()).to(device)
    next_done = torch.zeros(num_envs)
    for update in range(1, 5):
        optimizer.param_groups[0]["lr"] = (1 - (update - 1) / 5) * 2.5e-3
        for step in range(num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
                values[step] = value.flatten()
            actions[step], logprobs[step] = action, logprob
            no, reward, done = envs.step(action.cpu().numpy())
            rewards[step] = torch.tensor(reward).to(device).view(-1)
            next_obs, next_done = torch.Tensor(no), torch.Tensor(done)
        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(1, -1)
            advantages = torch.zeros_like(rewards)
            lastgaelam = 0
            for t in reversed(range(num_steps)):
                nonterm = 1.0 - (next_done if t == num_steps - 1 else dones[t + 1])
                nv = next_value if t == num_steps - 1 else values[t + 1]
                delta = rewards[t] + 0.99 * nv * nonterm - values[t]
                advantages[t] = lastgaelam = delta + 0.99 * 0.95 * nonterm * lastgaelam
            returns = advantages + values
        b_obs, b_logprobs = obs.reshape((-1, 3)), logprobs.reshape(-1)
        b_actions = actions.reshape((-1,) + actions.shape[2:])
        b_adv, b_ret, b_val = advantages.reshape(-1), returns.reshape(-1), values.reshape(-1)
        b_inds = np.arange(64)
        rs = np.random.RandomState(update)
        clipfracs = []
        for epoch in range(2):
            rs.shuffle(b_inds)
            for start in range(0, 64, 16):
                mb = b_inds[start : start + 16]
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(
                    b_obs[mb], b_actions[mb] if continuous else b_actions.long()[mb]
                )
                logratio = newlogprob - b_logprobs[mb]
                ratio = logratio.exp()
                with torch.no_grad():
                    old_approx_kl = (-logratio).mean()
                    approx_kl = ((ratio - 1) - logratio).mean()
                    clipfracs += [((ratio - 1.0).abs() > 0.2).float().mean().item()]
                a = b_adv[mb]
                a = (a - a.mean()) / (a.std() + 1e-8)
                pg = torch.max(-a * ratio, -a * torch.clamp(ratio, 1 - 0.2, 1 + 0.2)).mean()
                newvalue = newvalue.view(-1)
                v_clipped = b_val[mb] + torch.clamp(newvalue - b_val[mb], -0.2, 0.2)
                v_loss = (
                    0.5
                    * torch.max((newvalue - b_ret[mb]) ** 2, (v_clipped - b_ret[mb]) ** 2).mean()
                )
                loss = pg - 0.01 * entropy.mean() + v_loss * 0.5
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        y_pred, y_true = b_val.cpu().numpy(), b_ret.cpu().numpy()
        print(
            f"ppo {continuous} {update} v {v_loss.item():.4f} pg {pg.item():.4f} ent {entropy.mean().item():.4f} kl {approx_kl.item():.5f} clip {np.mean(clipfracs):.3f} ev {1 - np.var(y_true - y_pred) / np.var(y_true):.3f}"
        )
# reinforce
policy = nn.Sequential(
    nn.Linear(3, 16), nn.Dropout(p=0.6), nn.ReLU(), nn.Linear(16, 2), nn.Softmax(dim=-1)
)
opt = optim.Adam(policy.parameters(), lr=1e-2)
env = VecEnv(1)
eps = np.finfo(np.float32).eps.item()
for i in range(4):
    state = env.reset()[0]
    log_probs, rew = [], []
    for t in range(10):
        m = Categorical(policy(torch.from_numpy(state).float().unsqueeze(0)))
        a = m.sample()
        log_probs.append(m.log_prob(a))
        s, r, d = env.step(a.numpy())
        state = s[0]
        rew.append(float(r[0]))
    R, ret = 0, []
    for r in rew[::-1]:
        R = r + 0.99 * R
        ret.insert(0, R)
    ret = torch.tensor(ret)
    ret = (ret - ret.mean()) / (ret.std() + eps)
    loss = torch.cat([-lp * R for lp, R in zip(log_probs, ret)]).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"reinforce {i} {loss.item():.4f}")
print(
    kl_divergence(
        Normal(torch.tensor([0.0, 1.0]), 1.0),
        Normal(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 0.5])),
    ),
    Categorical(torch.tensor([0.2, 0.8])),
)
