"""As programs were written years ago: Variables, numbers before tensors, sparse constructors.

A graph network trained by an Adam of its own, and a critic whose gradient is held to length one.
"""

from __future__ import division, print_function

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable, grad
from torch.nn.modules.module import _addindent
from torch.nn.modules.utils import _pair
from torch.optim.optimizer import Optimizer, required
from torch.utils import model_zoo  # noqa: F401  only its presence is asked for

torch.manual_seed(7)
Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor


class OldAdam(Optimizer):
    def __init__(self, params, lr=required, betas=(0.9, 0.999), eps=1e-8):
        super(OldAdam, self).__init__(params, dict(lr=lr, betas=betas, eps=eps))

    def step(self, closure=None):
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for p in group['params']:
                if p.grad is None:
                    continue
                gradient, state = p.grad.data, self.state[p]
                if len(state) == 0:
                    state['step'] = 0
                    state['mean'] = gradient.new().resize_as_(gradient).zero_()
                    state['square'] = gradient.new().resize_as_(gradient).zero_()
                mean, square, (beta1, beta2) = state['mean'], state['square'], group['betas']
                state['step'] += 1
                mean.mul_(beta1).add_(1 - beta1, gradient)
                square.mul_(beta2).addcmul_(1 - beta2, gradient, gradient)
                corrected = math.sqrt(1 - beta2 ** state['step']) / (1 - beta1 ** state['step'])
                p.data.addcdiv_(-group['lr'] * corrected, mean, square.sqrt().add_(group['eps']))
        return loss


class GraphConvolution(nn.Module):
    def __init__(self, inputs, outputs):
        super(GraphConvolution, self).__init__()
        self.weight = nn.Parameter(torch.Tensor(inputs, outputs))
        self.bias = nn.Parameter(torch.Tensor(outputs))
        bound = 1. / math.sqrt(outputs)
        self.weight.data.uniform_(-bound, bound)
        self.bias.data.uniform_(-bound, bound)

    def forward(self, x, adjacency):
        return torch.spmm(adjacency, torch.mm(x, self.weight)) + self.bias

    def __repr__(self):
        return 'GraphConvolution(\n  ' + _addindent(repr(tuple(self.weight.size())), 2) + '\n)'


class GCN(nn.Module):
    def __init__(self, layers):
        super(GCN, self).__init__()
        self.count = len(layers) - 1
        for k in range(self.count):
            self.add_module('layer_%d' % k, GraphConvolution(layers[k], layers[k + 1]))

    def forward(self, x, adjacency):
        for k in range(self.count):
            x = self.__getattr__('layer_%d' % k)(x, adjacency)
            if k + 1 < self.count:
                x = F.dropout(F.relu(x), 0.3, training=self.training)
        return F.log_softmax(x, dim=1)


def train_graph_network(nodes=24):
    numbers = np.random.RandomState(0)
    pairs = torch.from_numpy(numbers.randint(0, nodes, (2, 60))).long()
    values = torch.FloatTensor(60).fill_(1. / 3)
    adjacency = torch.sparse.FloatTensor(pairs, values, torch.Size([nodes, nodes])).coalesce()
    x = Variable(torch.from_numpy(numbers.rand(nodes, 6)).type(Tensor))
    y = Variable(torch.LongTensor(numbers.randint(0, 3, nodes)), requires_grad=False)
    model = GCN([6, 8, 3])
    print(model)
    optimizer = OldAdam(model.parameters(), lr=0.02)
    for epoch in range(4):
        model.train()
        optimizer.zero_grad()
        loss = F.nll_loss(model(x, adjacency), y, size_average=False)
        loss.backward()
        optimizer.step()
        right = model(x, adjacency).data.max(1)[1].eq(y.data).cpu().sum()
        print('epoch %d loss %.4f right %d' % (epoch, loss.data.item(), right))
    print(2 in y.data, 3 in y.data)


def train_critic():
    layers = [nn.Conv2d(1, 8, _pair(3), padding=1), nn.GroupNorm(2, 8), nn.LeakyReLU(0.2, True),
              nn.Conv2d(8, 1, 4, 2)]
    critic = nn.Sequential(*layers)
    border = torch.zeros(1, 1, 1, 8).repeat(4, 1, 8, 1)
    border[:, :, 0] = border[:, :, -1] = 1
    for step in range(3):
        real = Variable(torch.rand(4, 1, 8, 8).type(Tensor)) + border
        mixed = Variable(real.data * 0.3 + 0.7 * torch.rand(4, 1, 8, 8), requires_grad=True)
        score = critic(mixed)
        slope = grad(outputs=score, inputs=mixed, grad_outputs=torch.ones(score.size()),
                     create_graph=True, retain_graph=True, only_inputs=True)[0]
        penalty = ((slope.view(4, -1).norm(2, dim=1) - 1) ** 2).mean()
        loss = score.mean() - critic(real).mean() + 10 * penalty
        critic.zero_grad()
        loss.backward()
        for p in critic.parameters():
            p.data.add_(-0.01, p.grad.data)
            p.data.clamp_(-0.5, 0.5)
        print('critic %d loss %.4f penalty %.4f' % (step, loss.item(), penalty.item()))


if __name__ == '__main__':
    train_graph_network()
    train_critic()
