"""Networks on graphs: convolution, attention and message passing by index_add and scatter."""
import torch, math
import torch.nn as nn, torch.nn.functional as F
from torch.nn.parameter import Parameter
from torch.nn.modules.module import Module

torch.manual_seed(2)


class GraphConvolution(Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.FloatTensor(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        output = torch.mm(adj, support)
        return output + self.bias if self.bias is not None else output

    def __repr__(self):
        return (
            self.__class__.__name__
            + " ("
            + str(self.in_features)
            + " -> "
            + str(self.out_features)
            + ")"
        )


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


class GATLayer(nn.Module):
    def __init__(self, i, o, h):
        super().__init__()
        self.h, self.o = h, o
        self.W = nn.Linear(i, h * o, bias=False)
        self.a = nn.Parameter(torch.empty(2, h, o))
        nn.init.xavier_normal_(self.a, gain=1.414)

    def forward(self, x, ei):
        n = x.size(0)
        src, dst = ei
        z = self.W(x).view(n, self.h, self.o)
        e = F.leaky_relu((z[src] * self.a[0]).sum(-1) + (z[dst] * self.a[1]).sum(-1), 0.2)
        m = torch.full((n, self.h), -1e9).scatter_reduce(
            0, dst[:, None].expand_as(e), e, reduce="amax", include_self=True
        )
        p = (e - m.detach()[dst]).exp()
        den = torch.zeros(n, self.h).index_add_(0, dst, p)
        w = p / (den[dst] + 1e-16)
        out = torch.zeros(n, self.h, self.o).scatter_add_(
            0, dst[:, None, None].expand(-1, self.h, self.o), w[..., None] * z[src]
        )
        return F.elu(out.flatten(1))


class MPNN(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.msg = nn.Bilinear(d, d, d)
        self.upd = nn.GRUCell(d, d)

    def forward(self, x, ei, steps=2):
        for _ in range(steps):
            m = self.msg(x[ei[0]], x[ei[1]])
            agg = x.new_zeros(x.shape).index_add(0, ei[1], m)
            x = self.upd(agg, x)
        return x


n = 30
ei = torch.randint(0, n, (2, 120))
ei = torch.cat([ei, ei.flip(0), torch.arange(n).repeat(2, 1)], 1)
ei = torch.unique(ei, dim=1)
adj = torch.zeros(n, n)
adj[ei[0], ei[1]] = 1.0
deg = adj.sum(1).pow(-0.5)
deg[deg == float("inf")] = 0
adj = deg.diag() @ adj @ torch.diag(deg)
x = F.one_hot(torch.arange(n) % 7, 7).float() + 0.1 * torch.randn(n, 7)
y = torch.arange(n) % 3
train, test = torch.arange(20), torch.arange(20, n)
mask = torch.zeros(n, dtype=torch.bool).index_fill_(0, train, True)
for name, net in [("gcn", GCN(7, 8, 3, 0.3)), ("gat", None), ("mpnn", None)]:
    if name == "gcn":
        f = lambda: net(x, adj)
        print(net)
    elif name == "gat":
        net = nn.ModuleList([GATLayer(7, 4, 2), nn.Linear(8, 3)])
        f = lambda: net[1](net[0](x, ei)).log_softmax(-1)
    else:
        net = nn.ModuleDict({"m": MPNN(7), "o": nn.Linear(7, 3)})
        f = lambda: F.log_softmax(net["o"](net["m"](x, ei)), -1)
    opt = torch.optim.Adam(net.parameters(), lr=0.05, weight_decay=5e-4)
    for ep in range(5):
        net.train()
        opt.zero_grad()
        out = f()
        loss = F.nll_loss(out[mask], y[mask])
        loss.backward()
        opt.step()
        acc = out[~mask].max(1)[1].type_as(y).eq(y[~mask]).double().sum() / (~mask).sum()
        print("{} Epoch: {:04d} loss {:.4f} acc {:.4f}".format(name, ep + 1, loss.item(), acc))
batch = torch.tensor([0] * 10 + [1] * 20)
print(
    torch.zeros(2, 7)
    .scatter_reduce_(0, batch[:, None].expand(-1, 7), x, "mean", include_self=False)
    .sum(1)
)
sp = torch.sparse_coo_tensor(ei, torch.ones(ei.size(1)), (n, n)).coalesce()
print(torch.sparse.mm(sp, x)[0, :3], sp.to_dense().sum())
