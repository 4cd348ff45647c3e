"""A U-Net that finds discs in noisy pictures: Dice loss, skip connections, RMSprop, logging."""
import argparse
import logging
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor, optim
from torch.utils.data import DataLoader, TensorDataset, random_split


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels, mid_channels=None):
        super().__init__()
        mid_channels = mid_channels or out_channels
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, mid_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(mid_channels), nn.ReLU(inplace=True),
            nn.Conv2d(mid_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels, bilinear=True):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(in_channels, out_channels, in_channels // 2)
        else:
            self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
            self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        diffY, diffX = x2.size()[2] - x1.size()[2], x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [diffX // 2, diffX - diffX // 2, diffY // 2, diffY - diffY // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, bilinear=False, width=4):
        super(UNet, self).__init__()
        self.n_channels, self.n_classes, self.bilinear = n_channels, n_classes, bilinear
        factor = 2 if bilinear else 1
        w = width
        self.inc = DoubleConv(n_channels, w)
        self.down1 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(w, 2 * w))
        self.down2 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(2 * w, 4 * w // factor))
        self.up1 = Up(4 * w, 2 * w // factor, bilinear)
        self.up2 = Up(2 * w, w, bilinear)
        self.outc = nn.Conv2d(w, n_classes, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        return self.outc(self.up2(self.up1(x3, x2), x1))

    def use_checkpointing(self):
        self.down2 = CheckpointedModule(self.down2)


class CheckpointedModule(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)


def dice_coeff(input: Tensor, target: Tensor, epsilon: float = 1e-6):
    assert input.size() == target.size()
    inter = 2 * (input * target).sum(dim=(-1, -2))
    sets_sum = input.sum(dim=(-1, -2)) + target.sum(dim=(-1, -2))
    sets_sum = torch.where(sets_sum == 0, inter, sets_sum)
    return ((inter + epsilon) / (sets_sum + epsilon)).mean()


def discs(count, size=22):
    ys, xs = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    centre = torch.randint(6, size - 6, (count, 2, 1, 1))
    radius = torch.randint(3, 6, (count, 1, 1))
    masks = ((ys - centre[:, 0]) ** 2 + (xs - centre[:, 1]) ** 2 <= radius ** 2).long()
    return masks[:, None].float() + 0.3 * torch.randn(count, 1, size, size), masks


@torch.inference_mode()
def evaluate(net, loader, device):
    net.eval()
    score = 0
    for images, masks in loader:
        pred = (torch.sigmoid(net(images.to(device=device, memory_format=torch.channels_last))
                              ).squeeze(1) > 0.5).float()
        score += dice_coeff(pred, masks.float())
    net.train()
    return score / max(len(loader), 1)


def train_model(model, device, epochs, batch_size, learning_rate, amp, out):
    dataset = TensorDataset(*discs(48))
    n_val = int(len(dataset) * 0.25)
    train_set, val_set = random_split(dataset, [len(dataset) - n_val, n_val],
                                      generator=torch.Generator().manual_seed(0))
    loader_args = dict(batch_size=batch_size, num_workers=0, pin_memory=False)
    train_loader = DataLoader(train_set, shuffle=True, **loader_args)
    val_loader = DataLoader(val_set, shuffle=False, drop_last=True, **loader_args)
    optimizer = optim.RMSprop(model.parameters(), lr=learning_rate, weight_decay=1e-8,
                              momentum=0.9, foreach=True)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=5)
    grad_scaler = torch.cuda.amp.GradScaler(enabled=amp)
    criterion = nn.BCEWithLogitsLoss()
    history = []
    for epoch in range(1, epochs + 1):
        model.train()
        epoch_loss = 0
        for images, true_masks in train_loader:
            assert images.shape[1] == model.n_channels
            images = images.to(device, dtype=torch.float32, memory_format=torch.channels_last)
            with torch.autocast(device.type if device.type != "mps" else "cpu", enabled=amp):
                pred = model(images)
                loss = criterion(pred.squeeze(1), true_masks.float())
                loss += 1 - dice_coeff(torch.sigmoid(pred.squeeze(1)), true_masks.float())
            optimizer.zero_grad(set_to_none=True)
            grad_scaler.scale(loss).backward()
            grad_scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            grad_scaler.step(optimizer)
            grad_scaler.update()
            epoch_loss += loss.item()
        for tag, value in model.named_parameters():
            assert not (torch.isinf(value) | torch.isnan(value)).any(), tag
        val_score = evaluate(model, val_loader, device)
        scheduler.step(val_score)
        logging.info(f"epoch {epoch}: loss {epoch_loss:.4f} Dice {val_score:.3f}")
        history.append(epoch_loss)
        Path(out).mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), str(Path(out) / f"checkpoint_epoch{epoch}.pth"))
    assert history[-1] < history[0], history


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", "-e", type=int, default=3)
    parser.add_argument("--bilinear", action="store_true")
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--out", default="checkpoints")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    logging.info(f"Using device {device}")
    model = UNet(n_channels=1, n_classes=1, bilinear=args.bilinear)
    model = model.to(memory_format=torch.channels_last)
    model.to(device=device)
    if args.checkpointing:
        model.use_checkpointing()
    try:
        train_model(model, device, args.epochs, 8, 1e-3, args.amp, args.out)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        raise
    state = torch.load(str(Path(args.out) / f"checkpoint_epoch{args.epochs}.pth"),
                       map_location=device)
    model.load_state_dict(state)
    print("done")
