"""What a machine or a group of machines does to a program: used by the faults of that family.

Each counts its calls by the key `at`, and acts at the call of that number."""

import collections
import copy

import torch

calls = collections.Counter()
kept = {}


def is_at(what, at):
    calls[what, at] += 1
    return calls[what, at] == at


@torch.no_grad()
def flip(parameter, at, bit=30):
    """One bit of one float32 value in memory."""
    if is_at("flip", at):
        flat = parameter.data.view(-1)
        flat[flat.numel() // 2:flat.numel() // 2 + 1].view(torch.int32).bitwise_xor_(1 << bit)


def lost(parameter, at=1):
    """The sum over the replicas of one gradient arrives as zeros, from one call on."""
    calls["lost", at] += 1
    if calls["lost", at] >= at and parameter.grad is not None:
        parameter.grad.zero_()


def bad(tensor, at):
    """A kernel that leaves one row of its result unwritten, once."""
    if is_at("bad", at):
        tensor = tensor.clone(memory_format=torch.contiguous_format)
        tensor.data.view(-1)[:max(1, tensor.numel() // 8)] = float("nan")
    return tensor


def old_copy(model, save, load):
    """A worker that restarts from the weights of an old checkpoint, once."""
    if is_at("save", save):
        kept["weights"] = copy.deepcopy(model.state_dict())
    if is_at("load", load):
        model.load_state_dict(kept["weights"])


@torch.no_grad()
def rounded(model):
    """Weights as a machine without float32 keeps them: bfloat16 between updates."""
    for parameter in model.parameters():
        parameter.copy_(parameter.to(torch.bfloat16))


def stale(tensor, at=1):
    """A buffer that is handed on before it is filled: from one call on, the content of the call before."""
    calls["stale", at] += 1
    before, kept["stale", at] = kept.get(("stale", at), tensor), tensor
    return before if calls["stale", at] >= at and before.shape == tensor.shape else tensor


@torch.no_grad()
def lost_page(parameter, at):
    """A part of a parameter's memory is zeros, once."""
    if is_at("page", at):
        parameter.data.view(-1)[:parameter.numel() // 2] = 0
