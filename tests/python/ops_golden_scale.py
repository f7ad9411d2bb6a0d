"""Cases of tests/golden/ops: automatic loss scaling."""
import torch

from ops_golden import INF, NAN, case, poisoned, randn


def loss_scales():
    """torch.amp.GradScaler's two functions."""
    for name, values in (("none", randn(70)), ("nan", poisoned(randn(70), (69, NAN))),
                         ("inf", poisoned(randn(3, 5), (0, -INF)))):
        found = torch.zeros(1)
        torch._amp_foreach_non_finite_check_and_unscale_([values.clone()], found, torch.ones(1))
        for before in (None, torch.zeros(()), torch.ones(())):
            ins = [("g", values)] + ([] if before is None else [("before", before)])
            y = found[0] if before is None else torch.maximum(found[0], before)
            which = "alone" if before is None else int(before.item())
            case(f"found_inf.{name}.{which}", "FoundInf", ins, [("y", y)], exact=1)
    for i, (found, scale, tracker, growth, backoff, interval) in enumerate((
            (0.0, 65536.0, 3, 2.0, 0.5, 2000), (1.0, 65536.0, 3, 2.0, 0.5, 2000),
            (0.0, 1024.0, 4, 3.0, 0.25, 5), (0.0, 3e38, 4, 2.0, 0.5, 5), (1.0, 8.0, 0, 2.0, 0.5, 1))):
        after, count = torch.tensor([scale]), torch.tensor([tracker], dtype=torch.int32)
        torch._amp_update_scale_(after, count, torch.tensor([found]), growth, backoff, interval)
        case(f"loss_scale.{i}", "LossScale",
             [("found", torch.tensor(found)), ("scale", torch.tensor(scale)),
              ("tracker", torch.tensor(float(tracker))), ("skipped", torch.tensor(2.0))],
             [("new_scale", after[0]), ("new_tracker", count[0].float()),
              ("new_skipped", torch.tensor(2.0 + found))],
             growth=growth, backoff=backoff, interval=interval, exact=1)
    case("loss_scale.inf", "LossScale",
         [("found", torch.tensor(0.0)), ("scale", torch.tensor(INF)), ("tracker", torch.tensor(0.0)),
          ("skipped", torch.tensor(0.0))],
         [("new_scale", torch.tensor(INF)), ("new_tracker", torch.tensor(1.0)),
          ("new_skipped", torch.tensor(0.0))],
         growth=2.0, backoff=0.5, interval=7, exact=1)
