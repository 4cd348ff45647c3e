"""A pipeline: files on disk, a Dataset, augmentation in workers, weights for rare classes."""

import csv
import tempfile
from pathlib import Path

import flambeau as torch
from flambeau.datasets import load_digits
from flambeau.utils.data import ConcatDataset, DataLoader, Dataset, Subset, WeightedRandomSampler


class Table(Dataset):
    """Rows of a CSV file: the label, then 64 pixels. Read when asked for, kept as bytes."""

    def __init__(self, path, augment=False):
        with path.open(newline="") as file:
            rows = [bytes(map(int, row)) for row in csv.reader(file)]
        self.rows, self.augment = rows, augment

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        label, *pixels = self.rows[index]
        image = torch.tensor(pixels, dtype=torch.float32).view(1, 8, 8) / 16
        if self.augment and torch.rand(()) < 0.5:  # every worker has random numbers of its own
            image = torch.roll(image, int(torch.randint(-1, 2, ())), dims=-1)
        return {"image": image, "label": label}


def write_files(folder):
    images, labels = load_digits()
    for part in range(3):
        with (folder / f"part{part}.csv").open("w", newline="") as file:
            chosen = zip(labels[part::3].tolist(), (images[part::3] * 16).int().flatten(1).tolist())
            csv.writer(file).writerows([label, *pixels] for label, pixels in chosen)


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        whole = ConcatDataset([Table(path, True) for path in sorted(folder.glob("*.csv"))])
        print(f"{len(whole)} examples in 3 files")

        # few sevens, as in real life; a sampler that makes up for it
        kept = [i for i in range(len(whole)) if whole[i]["label"] != 7 or i % 10 == 0]
        rare = Subset(whole, kept)
        labels = torch.tensor([rare[i]["label"] for i in range(len(rare))])
        counts = torch.bincount(labels, minlength=10)
        print("of each digit:      ", counts.tolist())
        weights = (1.0 / counts)[labels]
        sampler = WeightedRandomSampler(weights.tolist(), num_samples=2000)
        loader = DataLoader(rare, batch_size=50, sampler=sampler, num_workers=2)
        drawn = torch.zeros(10, dtype=torch.long)
        for batch in loader:  # dictionaries are collated too
            drawn += torch.bincount(batch["label"], minlength=10)
        print("drawn by the sampler:", drawn.tolist())
        print("a batch:", {key: tuple(value.shape) for key, value in batch.items()})


if __name__ == "__main__":  # workers import this file
    main()
