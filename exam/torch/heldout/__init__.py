"""Families that rules are not tuned on, in two halves by the hash of their names. The first one
(HELD_OUT) is judged once; the second one (SEALED) stays unjudged, for a later change of the rules.

A family has `traits`, which say what faults it can have:

    one       its losses are to fall: no players, no bootstrapped targets
    signed    its loss may be negative
    chain     its layers follow one another
    relu      with a ReLU after a layer that has a bias
    floats    its batches have real numbers
    input     of which `input` should be normalized
    drawn     its classes are drawn anew for each batch
    full      all samples at every step
    column    its targets are a column
    norm      batch norm; dropout: dropout; both evaluate now and then
    own-loss  its loss takes no other softmax
    staged    layers are frozen and unfrozen on purpose
    agent     it makes its own data
    and some that a single family has (see FITS)"""

import hashlib

from . import pictures, series, tables, worlds

EACH, QUOTA = 11, 8  # faults of a family, families of a fault
SOFT = ("classes", "tokens")


def has(family, *traits):
    return all(t in family.traits.split() for t in traits)


def lacks(family, *traits):
    return not any(t in family.traits.split() for t in traits)


def rated(f):
    return lacks(f, "staged")


def layered(f):
    return lacks(f, "staged", "nolayers", "lone")


def sgd(f):
    return f.optimizer == "sgd" and lacks(f, "twice")


def evaluates(f, trait):
    return f.eval_every > 0 and has(f, trait)


def learns(f):
    return f.labels in ("classes", "tokens", "real") and lacks(f, "ordered", "single")


def steps(f, count):
    return f.steps >= count


def invariant(f):
    return f.optimizer in ("rprop", "lars")


def unscheduled(f):
    return not {"make_schedule"} & set(vars(f))


FITS = {
    "rate-x100": rated, "rate-x1000": rated, "rate-/1000": rated, "rate-/30000": rated,
    "rate-x300-later": lambda f: rated(f) and unscheduled(f) and steps(f, 100),
    "eps-10": lambda f: f.optimizer in ("adam", "adamw", "nadam", "radam") and rated(f),
    "momentum-0.999": sgd, "reduction-sum": sgd,
    "reduction-twice": lambda f: sgd(f) and lacks(f, "noisy"),
    "accumulation-not-divided": sgd, "clipped-away": sgd,
    "decay-too-strong": lambda f: f.optimizer == "adamw",
    "no-zero-grad": lambda f: has(f, "one") and lacks(f, "twice"),
    "detached": lambda f: has(f, "chain"),
    "frozen-middle": layered,
    "not-in-optimizer": lambda f: layered(f) and f.optimizer != "lbfgs",
    "cleared-before-step": lambda f: rated(f) and f.optimizer != "lbfgs",
    "cleared-from-start": lambda f: rated(f) and f.optimizer != "lbfgs",
    "stale-copies": lambda f: has(f, "one"),
    "gradients-tiny": lambda f: rated(f) and f.optimizer != "rprop" and lacks(f, "noisy"),
    "gradients-explode": lambda f: rated(f) and f.clip is None and not invariant(f),
    "nan-in-input": lambda f: has(f, "floats"),
    "inf-in-activation": lambda f: lacks(f, "nolayers"),
    "nan-in-gradient": lambda f: lacks(f, "nolayers"),
    "bit-flip": lambda f: lacks(f, "nolayers"),
    "initial-x30": lambda f: has(f, "one"),
    "initial-constant": lambda f: has(f, "chain"),
    "dead-relu": lambda f: has(f, "chain", "relu"),
    "targets-shuffled": learns,
    "one-class": lambda f: f.labels == "classes" and lacks(f, "full"),
    "broadcast": lambda f: has(f, "column"),
    "not-normalized": lambda f: has(f, "input"),
    "same-batch-again": lambda f: lacks(f, "full"),
    "unshuffled": lambda f: f.labels == "classes" and has(f, "drawn"),
    "batch-norm-trains-in-eval": lambda f: evaluates(f, "norm"),
    "dropout-in-eval": lambda f: evaluates(f, "dropout"),
    "trains-in-eval-mode": lambda f: (evaluates(f, "norm") or evaluates(f, "dropout")) and
    lacks(f, "full"),
    "weights-of-another-time": lambda f: has(f, "one") and steps(f, 100),
    "wrong-sign": lambda f: has(f, "one") and lacks(f, "signed"),
    "softmax-twice": lambda f: f.labels in SOFT and (lacks(f, "own-loss") or f.__name__ ==
                                                     "ConvNext"),
    "softmax-over-batch": lambda f: f.labels == "classes" and lacks(f, "own-loss", "twice",
                                                                    "single"),
}


def number(*names):
    return hashlib.sha256(" ".join(names).encode()).hexdigest()


def plan(families):
    """Gives each family its faults: the rare ones first, and each fault to several families."""
    fits = {kind: [f for f in families if fit(f)] for kind, fit in FITS.items()}
    chosen = {f: [] for f in families}
    for kind in sorted(fits, key=lambda kind: (len(fits[kind]), kind)):
        free = [f for f in fits[kind] if len(chosen[f]) < EACH]
        for f in sorted(free, key=lambda f: (len(chosen[f]) // 4, number(f.__name__, kind)))[:QUOTA]:
            chosen[f].append(kind)
    for f, kinds in chosen.items():
        f.kinds = tuple(kinds)
    return {f.__name__: f for f in families}


ALL = sorted(pictures.FAMILIES + series.FAMILIES + tables.FAMILIES + worlds.FAMILIES,
             key=lambda f: number(f.__name__))
MIDDLE = "82"  # of the hashes; fixed, so that no family changes its half with the others
HELD_OUT = plan([f for f in ALL if number(f.__name__) < MIDDLE])
SEALED = plan([f for f in ALL if number(f.__name__) > MIDDLE])
