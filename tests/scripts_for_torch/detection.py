"""A one-stage detector: box overlaps, suppression, focal loss, sampling grids."""
import torch, torch.nn as nn, torch.nn.functional as F

torch.manual_seed(0)


def box_iou(a, b):
    ar, br = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1]), (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    lt = torch.max(a[:, None, :2], b[:, :2])
    rb = torch.min(a[:, None, 2:], b[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    return inter / (ar[:, None] + br - inter)


def nms(boxes, scores, thr):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        i = order[0]
        keep.append(i.item())
        if order.numel() == 1:
            break
        iou = box_iou(boxes[i].unsqueeze(0), boxes[order[1:]]).squeeze(0)
        order = order[1:][iou <= thr]
    return torch.tensor(keep)


class YOLO(nn.Module):
    def __init__(self, S=4, B=2, C=3):
        super().__init__()
        self.S, self.B, self.C = S, B, C

        def cbl(i, o, s=1):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.1)
            )

        self.back = nn.Sequential(cbl(3, 8, 2), cbl(8, 16, 2), cbl(16, 16, 2))
        self.fpn = nn.ModuleList([nn.Conv2d(16, 16, 1)])
        self.head = nn.Conv2d(16, B * 5 + C, 1)

    def forward(self, x):
        return self.head(self.fpn[0](self.back(x))).permute(0, 2, 3, 1)


def focal(p, t, alpha=0.25, gamma=2.0):
    ce = F.binary_cross_entropy_with_logits(p, t, reduction="none")
    pr = torch.sigmoid(p)
    pt = pr * t + (1 - pr) * (1 - t)
    return ((alpha * t + (1 - alpha) * (1 - t)) * ce * (1 - pt) ** gamma).sum()


net = YOLO()
opt = torch.optim.SGD(net.parameters(), lr=5e-3, momentum=0.9)
x = torch.rand(6, 3, 32, 32)
tgt = torch.zeros(6, 4, 4, 13)
for b in range(6):
    i, j = b % 4, (b * 2 + 1) % 4
    tgt[b, i, j, 0:5] = torch.tensor([0.5, 0.4, 0.3, 0.2, 1.0])
    tgt[b, i, j, 10 + b % 3] = 1
for it in range(8):
    p = net(x)
    obj = tgt[..., 4] > 0
    nb = p[~obj]
    po, to = p[obj], tgt[obj]
    lb = F.smooth_l1_loss(po[:, :2].sigmoid(), to[:, :2], reduction="sum", beta=0.1) + F.mse_loss(
        po[:, 2:4].exp().clamp(max=4).sqrt(), to[:, 2:4].sqrt(), reduction="sum"
    )
    lo = focal(p[..., 4], tgt[..., 4])
    lc = F.cross_entropy(
        po[:, 10:], to[:, 10:].argmax(1), reduction="sum", weight=torch.tensor([1.0, 2.0, 0.5])
    )
    ln = 0.5 * F.huber_loss(nb[:, 9], torch.zeros_like(nb[:, 9]), reduction="sum")
    loss = 5 * lb + lo + lc + ln
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0, error_if_nonfinite=True)
    opt.step()
    print(f"{it} box {lb:.4f} obj {lo:.4f} cls {lc:.4f} no {ln:.4f}")
boxes = torch.rand(20, 4)
boxes[:, 2:] += boxes[:, :2]
sc = torch.rand(20)
print(nms(boxes, sc, 0.4), box_iou(boxes[:2], boxes[:3]))
g = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="xy"), -1).float()
anchors = torch.cat([g - 0.5, g + 0.5], -1).view(-1, 4)
iou = box_iou(anchors, boxes)
m, idx = iou.max(dim=1)
lab = torch.where(m > 0.3, idx, torch.full_like(idx, -1))
print(
    lab.tolist(),
    torch.nonzero(lab >= 0, as_tuple=False).numel(),
    torch.nonzero(lab >= 0, as_tuple=True)[0][:3],
)
theta = torch.tensor([[[0.8, 0.1, 0.0], [-0.1, 0.8, 0.1]]])
grid = F.affine_grid(theta, (1, 3, 8, 8), align_corners=False)
print(
    F.grid_sample(x[:1], grid, mode="bilinear", padding_mode="border", align_corners=False)
    .sum()
    .item()
    .__format__(".4f")
)
roi = F.interpolate(x[:1, :, 4:20, 3:25], size=(7, 7), mode="bilinear", align_corners=False)
print(
    roi.shape,
    F.unfold(x[:1], 3, padding=1, stride=2).shape,
    F.fold(F.unfold(x[:1], 2, stride=2), (32, 32), 2, stride=2).equal(x[:1]),
)
pool, ind = F.max_pool2d(x[:1], 2, return_indices=True)
print(
    F.max_unpool2d(pool, ind, 2).sum().item().__format__(".3f"),
    nn.FractionalMaxPool2d(2, output_size=5)(x[:1]).shape,
    F.lp_pool2d(x[:1], 2.0, 2).mean().item().__format__(".4f"),
)
hung = torch.cdist(torch.rand(4, 2), torch.rand(3, 2), p=1)
print(hung.min(0), torch.logsumexp(-hung, 1), hung.argsort(dim=0, stable=True))
