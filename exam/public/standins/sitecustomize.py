"""Loaded by the interpreter before a program of the exam: its seed, its last step, and modules that only draw or log."""

import importlib.abc
import importlib.machinery
import os
import random
import sys
import unittest.mock

PLUMBING = {"matplotlib", "visdom", "wandb", "tensorboardX", "seaborn", "imageio", "IPython", "setproctitle",
            "onnx", "tensorboard", "sklearn_plot", "tensorboard_logger", "skimage", "scipy_plot", "cv2", "pandas",
            "torch.utils.tensorboard", "mpl_toolkits", "scipy", "sklearn", "h5py", "wandb"}


class Plumbing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives every module under the names of PLUMBING: objects that take any call."""

    def find_spec(self, name, path=None, target=None):
        if name in PLUMBING or name.split(".")[0] in PLUMBING:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = unittest.mock.MagicMock(name=spec.name)
        module.__spec__, module.__path__, module.__name__ = spec, [], spec.name
        module.subplots.return_value = unittest.mock.MagicMock(), unittest.mock.MagicMock()
        return module

    def exec_module(self, module):
        pass


def seed_all(seed):
    """The program's own seeds are moved by that of the run; those of a loader's workers follow from them."""
    import numpy
    import torch
    own = torch.manual_seed, numpy.random.seed, random.seed

    def moved(one):
        return lambda value=0, *a: one((value or 0) + seed if isinstance(value, (int, type(None))) else value, *a)

    for one in own:
        one(seed)
    torch.manual_seed, numpy.random.seed, random.seed = (moved(one) for one in own)


def end_after(steps):
    """Ends the program as by sys.exit() after so many updates, all optimizers counted."""
    from torch.optim.optimizer import register_optimizer_step_post_hook
    done = 0

    def count(optimizer, args, kwargs):
        nonlocal done
        done += 1
        if done >= steps:
            raise SystemExit(0)

    register_optimizer_step_post_hook(count)


sys.meta_path.insert(0, Plumbing())
if "SONDE_EXAM_SEED" in os.environ:
    import torch
    torch.set_num_threads(1)
    seed_all(int(os.environ["SONDE_EXAM_SEED"]))
    end_after(int(os.environ["SONDE_EXAM_STEPS"]))
