"""Pictures of ten classes: a smooth pattern of each class, moved, dimmed and with noise."""

import os

import numpy as np
import torch

TRAIN = int(os.environ.get("SONDE_EXAM_PICTURES", "2048"))


class Picture(np.ndarray):
    """A picture as PIL hands it over, as far as the transforms need one."""

    size = property(lambda self: (self.shape[1], self.shape[0]))


def patterns(classes, side, channels, seed):
    random = np.random.RandomState(seed)
    coarse = random.rand(classes, channels, 7, 7)
    wide = coarse.repeat(-(-side // 7), 2).repeat(-(-side // 7), 3)[:, :, :side, :side]
    return np.where(wide > 0.6, wide, 0)


def pictures(count, classes, side, channels, seed):
    random = np.random.RandomState(seed + count)
    labels = random.randint(0, classes, count)
    shapes = patterns(classes, side, channels, seed)[labels]
    moved = np.stack([np.roll(p, tuple(random.randint(-2, 3, 2)), (1, 2)) for p in shapes])
    drawn = moved * random.uniform(0.7, 1, (count, 1, 1, 1)) + 0.08 * random.rand(count, channels, side, side)
    return (255 * drawn.clip(0, 1)).astype(np.uint8).transpose(0, 2, 3, 1), labels


class Drawn(torch.utils.data.Dataset):
    classes, side, channels, seed = [str(n) for n in range(10)], 28, 1, 1

    def __init__(self, root=None, train=True, transform=None, target_transform=None, download=False, split=None,
                 **options):
        self.train = split == "train" if split is not None else train
        self.transform, self.target_transform = transform, target_transform
        count = TRAIN if self.train else TRAIN // 4
        images, labels = pictures(count, len(self.classes), self.side, self.channels, self.seed)
        self.data = torch.from_numpy(images[..., 0]) if self.channels == 1 else images
        self.targets = torch.from_numpy(labels) if self.channels == 1 else labels.tolist()

    train_data = test_data = property(lambda self: self.data)
    train_labels = test_labels = labels = property(lambda self: self.targets)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        picture = np.asarray(self.data[index]).view(Picture)
        label = int(self.targets[index])
        if self.transform:
            picture = self.transform(picture)
        return picture, self.target_transform(label) if self.target_transform else label


class MNIST(Drawn):
    pass


class FashionMNIST(Drawn):
    seed = 2


class CIFAR10(Drawn):
    side, channels, seed = 32, 3, 3


class CIFAR100(CIFAR10):
    classes, seed = [str(n) for n in range(100)], 4


class SVHN(CIFAR10):
    seed = 5


class STL10(CIFAR10):
    side, seed = 96, 6


class ImageFolder(Drawn):
    side, channels, seed = 64, 3, 7

    def __init__(self, root=None, transform=None, **options):
        super().__init__(root, True, transform)


class LSUN(ImageFolder):
    def __init__(self, root=None, classes=None, transform=None):
        super().__init__(root, transform)
