"""Transforms of pictures, on arrays of height, width and channels, and on tensors."""

import numpy as np
import torch
import torch.nn.functional as F


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, picture):
        for one in self.transforms:
            picture = one(picture)
        return picture


class ToTensor:
    def __call__(self, picture):
        array = np.array(picture)
        array = array[:, :, None] if array.ndim == 2 else array
        return torch.from_numpy(array.transpose(2, 0, 1).astype(np.float32) / (255 if array.dtype == np.uint8 else 1))


class Normalize:
    def __init__(self, mean, std, inplace=False):
        self.mean, self.std = (torch.tensor(v, dtype=torch.float32).view(-1, 1, 1) for v in (mean, std))

    def __call__(self, tensor):
        return (tensor - self.mean) / self.std


class Lambda:
    def __init__(self, function):
        self.function = function

    def __call__(self, picture):
        return self.function(picture)


class Resize:
    def __init__(self, size, *args, **options):
        self.size = (size, size) if isinstance(size, int) else tuple(size)

    def __call__(self, picture):
        if isinstance(picture, torch.Tensor):
            return F.interpolate(picture[None], self.size, mode="bilinear")[0]
        rows = np.arange(self.size[0]) * picture.shape[0] // self.size[0]
        columns = np.arange(self.size[1]) * picture.shape[1] // self.size[1]
        return picture[rows][:, columns]


class CenterCrop(Resize):
    pass


class Grayscale:
    def __init__(self, num_output_channels=1):
        pass

    def __call__(self, picture):
        return picture.mean(2).astype(np.uint8) if picture.ndim == 3 else picture


class RandomHorizontalFlip:
    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, picture):
        if torch.rand(()) >= self.p:
            return picture
        return picture.flip(-1) if isinstance(picture, torch.Tensor) else picture[:, ::-1].copy()


class RandomCrop:
    def __init__(self, size, padding=0, **options):
        self.size, self.padding = size if isinstance(size, int) else size[0], padding or 0

    def __call__(self, picture):
        pad = self.padding
        if isinstance(picture, torch.Tensor):
            wide = F.pad(picture, (pad, pad, pad, pad))
            top, left = (int(torch.randint(0, n - self.size + 1, ())) for n in wide.shape[1:])
            return wide[:, top:top + self.size, left:left + self.size]
        wide = np.pad(picture, ((pad, pad), (pad, pad)) + ((0, 0),) * (picture.ndim - 2))
        top, left = (int(torch.randint(0, n - self.size + 1, ())) for n in wide.shape[:2])
        return wide[top:top + self.size, left:left + self.size]


class Pad:
    def __init__(self, padding, **options):
        self.padding = padding

    def __call__(self, picture):
        if isinstance(picture, torch.Tensor):
            return F.pad(picture, (self.padding,) * 4)
        return np.pad(picture, ((self.padding, self.padding),) * 2 + ((0, 0),) * (picture.ndim - 2))


class RandomResizedCrop(Resize):
    pass


class RandomRotation:
    def __init__(self, *args, **options):
        pass

    def __call__(self, picture):
        return picture


ColorJitter = RandomGrayscale = RandomRotation
Scale = Resize


class ToPILImage:
    def __init__(self, mode=None):
        pass

    def __call__(self, tensor):
        return (255 * tensor.clamp(0, 1)).to(torch.uint8).numpy().transpose(1, 2, 0)
