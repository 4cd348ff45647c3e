"""Convolutional networks for 32 by 32 images: VGG, ResNet, DenseNet, MobileNet and more."""
import argparse
import os
import random

import numpy as np
import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset, Subset


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != self.expansion * planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, self.expansion * planes, 1, stride=stride, bias=False),
                nn.BatchNorm2d(self.expansion * planes))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    def __init__(self, block, num_blocks, num_classes=10, width=8):
        super().__init__()
        self.in_planes = width
        self.conv1 = nn.Conv2d(3, width, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = self._make_layer(block, width, num_blocks[0], stride=1)
        self.layer2 = self._make_layer(block, 2 * width, num_blocks[1], stride=2)
        self.layer3 = self._make_layer(block, 4 * width, num_blocks[2], stride=2)
        self.linear = nn.Linear(4 * width * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)

    def _make_layer(self, block, planes, num_blocks, stride):
        layers = []
        for stride in [stride] + [1] * (num_blocks - 1):
            layers.append(block(self.in_planes, planes, stride))
            self.in_planes = planes * block.expansion
        return nn.Sequential(*layers)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer3(self.layer2(self.layer1(out)))
        out = F.avg_pool2d(out, out.size()[2:])
        return self.linear(out.view(out.size(0), -1))


def vgg(cfg=(8, "M", 16, "M", 32, 32, "M", "M")):
    layers, channels = [], 3
    for x in cfg:
        if x == "M":
            layers += [nn.MaxPool2d(kernel_size=2, stride=2)]
        else:
            layers += [nn.Conv2d(channels, x, 3, padding=1), nn.BatchNorm2d(x),
                       nn.ReLU(inplace=True)]
            channels = x
    layers += [nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Dropout(), nn.Linear(channels, 10)]
    return nn.Sequential(*layers)


class DenseLayer(nn.Module):
    def __init__(self, channels, growth):
        super().__init__()
        self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(4 * growth)
        self.conv1 = nn.Conv2d(channels, 4 * growth, kernel_size=1, bias=False)
        self.conv2 = nn.Conv2d(4 * growth, growth, kernel_size=3, padding=1, bias=False)

    def forward(self, x):
        out = self.conv1(F.relu(self.bn1(x)))
        out = self.conv2(F.relu(self.bn2(out)))
        return torch.cat([out, x], 1)


def densenet(growth=4):
    layers, channels = [nn.Conv2d(3, 8, 3, padding=1, bias=False)], 8
    for last in (False, True):
        for _ in range(2):
            layers.append(DenseLayer(channels, growth))
            channels += growth
        if not last:
            layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // 2, 1),
                       nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(channels, 10))


class SE(nn.Module):
    def __init__(self, channels, inner):
        super().__init__()
        self.se1, self.se2 = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x):
        out = F.adaptive_avg_pool2d(x, (1, 1))
        out = F.silu(self.se1(out))
        return self.se2(out).sigmoid() * x


class InvertedResidual(nn.Module):
    """expand + depthwise + squeeze-and-excite + pointwise"""

    def __init__(self, inp, oup, stride, expand):
        super().__init__()
        hidden = inp * expand
        self.use_res = stride == 1 and inp == oup
        self.conv = nn.Sequential(
            nn.Conv2d(inp, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden), nn.Hardswish(), SE(hidden, 4),
            nn.Conv2d(hidden, oup, 1, bias=False), nn.BatchNorm2d(oup))

    def forward(self, x):
        return x + self.conv(x) if self.use_res else self.conv(x)


def mobilenet():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6(), InvertedResidual(8, 8, 1, 2),
        InvertedResidual(8, 12, 2, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10))


class ShuffleBlock(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x):
        N, C, H, W = x.size()
        g = self.groups
        return x.view(N, g, C // g, H, W).permute(0, 2, 1, 3, 4).reshape(N, C, H, W)


class LeNet(nn.Module):
    def __init__(self):
        super(LeNet, self).__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.shuffle = ShuffleBlock(2)
        self.conv2 = nn.Conv2d(6, 16, 5, groups=2)
        self.fc1 = nn.Linear(16 * 5 * 5, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        out = self.shuffle(F.max_pool2d(F.relu(self.conv1(x)), 2))
        out = F.max_pool2d(F.relu(self.conv2(out)), 2)
        out = torch.flatten(out, 1)
        return self.fc2(F.dropout(F.relu(self.fc1(out)), 0.1, self.training))


class Patches(nn.Module):
    """A small vision transformer."""

    def __init__(self, dim=16):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, 8, 8)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.zeros(1, 17, dim))
        nn.init.trunc_normal_(self.pos, std=0.02)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 10)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.pos
        x = x + self.attn(self.norm(x), self.norm(x), self.norm(x), need_weights=False)[0]
        return self.head(x[:, 0])


MODELS = {"resnet": lambda: ResNet(BasicBlock, [1, 1, 1]), "vgg": vgg, "densenet": densenet,
          "mobilenet": mobilenet, "lenet": LeNet, "patches": Patches}


class Pictures(Dataset):
    """Ten colours with noise, as uint8 arrays; flipped and cropped at random when training."""

    def __init__(self, count, train, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 10, count)
        colours = np.random.default_rng(0).integers(0, 256, (10, 3))
        noise = rng.normal(0, 20, (count, 32, 32, 3))
        self.data = np.clip(colours[self.labels][:, None, None] + noise, 0, 255).astype(np.uint8)
        self.train = train
        self.mean, self.std = torch.tensor([0.5, 0.5, 0.5]), torch.tensor([0.25, 0.25, 0.25])

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        x = torch.from_numpy(self.data[i]).permute(2, 0, 1).float().div(255)
        x = (x - self.mean[:, None, None]) / self.std[:, None, None]
        if self.train:
            if random.random() < 0.5:
                x = torch.flip(x, dims=[-1])
            top, left = np.random.randint(0, 9, 2)
            x = F.pad(x, (4, 4, 4, 4))[:, top:top + 32, left:left + 32]
        return x, int(self.labels[i])


parser = argparse.ArgumentParser(description="32x32 training")
parser.add_argument("--lr", default=0.05, type=float, help="learning rate")
parser.add_argument("--resume", "-r", action="store_true", help="resume from checkpoint")
parser.add_argument("--model", default="resnet", choices=MODELS)
parser.add_argument("--epochs", default=2, type=int)
parser.add_argument("--checkpoint", default="checkpoint")
parser.add_argument("--amp", action="store_true")
args = parser.parse_args()

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
best_acc, start_epoch = 0, 0
trainloader = DataLoader(Pictures(96, True, 1), batch_size=32, shuffle=True, num_workers=0,
                         drop_last=True)
testloader = DataLoader(Subset(Pictures(48, False, 2), range(40)), batch_size=20, shuffle=False)
net = MODELS[args.model]().to(device)
if device == "cuda":
    net = torch.nn.DataParallel(net)
    cudnn.benchmark = True
if args.resume:
    checkpoint = torch.load(f"{args.checkpoint}/ckpt.pth")
    net.load_state_dict(checkpoint["net"])
    best_acc, start_epoch = checkpoint["acc"], checkpoint["epoch"] + 1
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [
    torch.optim.lr_scheduler.LinearLR(optimizer, 0.3, total_iters=1),
    torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)], milestones=[1])


def train(epoch):
    net.train()
    train_loss, correct, total = 0, 0, 0
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device_type=device, dtype=torch.bfloat16, enabled=args.amp):
            outputs = net(inputs)
            loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        train_loss += loss.item()
        _, predicted = outputs.max(1)
        total += targets.size(0)
        correct += predicted.eq(targets).sum().item()
    print("Epoch %d Loss: %.3f | Acc: %.3f%% (%d/%d) lr %.4f" % (
        epoch, train_loss / (batch_idx + 1), 100. * correct / total, correct, total,
        scheduler.get_last_lr()[0]))
    return train_loss


def test(epoch):
    global best_acc
    net.eval()
    correct = total = 0
    with torch.no_grad():
        for inputs, targets in testloader:
            outputs = net(inputs.to(device))
            correct += (outputs.argmax(dim=1) == targets).sum().item()
            total += targets.size(0)
    acc = 100. * correct / total
    if acc >= best_acc:
        os.makedirs(args.checkpoint, exist_ok=True)
        torch.save({"net": net.state_dict(), "acc": acc, "epoch": epoch},
                   f"{args.checkpoint}/ckpt.pth")
        best_acc = acc


print(f"{args.model}: {sum(p.numel() for p in net.parameters() if p.requires_grad):,} parameters")
losses = []
for epoch in range(start_epoch, start_epoch + args.epochs):
    losses.append(train(epoch))
    test(epoch)
    scheduler.step()
assert all(np.isfinite(losses)) and losses[-1] < losses[0], losses
print(f"best {best_acc:.1f}%")
