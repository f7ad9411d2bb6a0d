"""tqdm without its output."""

import sys


class tqdm:
    def __init__(self, iterable=None, *args, total=None, **options):
        self.iterable, self.total, self.n = iterable if iterable is not None else range(total or 0), total, 0

    def __iter__(self):
        return iter(self.iterable)

    def __len__(self):
        return self.total if self.total is not None else len(self.iterable)

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        return None

    @staticmethod
    def write(text, *args, **options):
        print(text)

    def nothing(self, *args, **options):
        return None

    update = close = refresh = set_description = set_description_str = set_postfix = set_postfix_str = nothing


def trange(*args, **options):
    return tqdm(range(*args))


tqdm_notebook = tqdm
auto = notebook = sys.modules["tqdm.auto"] = sys.modules["tqdm.notebook"] = sys.modules[__name__]
