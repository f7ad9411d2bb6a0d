"""Pictures are not written."""

import torch


def save_image(tensor, path, *args, **options):
    return None


def make_grid(tensor, *args, **options):
    return torch.cat(list(tensor), -1)  # one row
