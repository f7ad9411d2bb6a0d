"""What the command starts: python -m sonde.onnx plan ONNX PLAN one|all SHAPE, and
python -m sonde.onnx write DESCRIPTION WEIGHTS ONNX."""

from ..command import Fault, run


def main(arguments: list[str]) -> None:
    import json

    from . import load
    from .writer import read_weights, write
    if arguments[:1] == ["plan"] and len(arguments) == 5:
        _, source, target, outputs, shape = arguments
        sizes = tuple(int(size) for size in shape.split(",") if size)
        load(source, shape=sizes, one_output=outputs == "one").save_plan(target)
    elif arguments[:1] == ["write"] and len(arguments) == 4:
        with open(arguments[1], encoding="utf-8") as file:
            description = json.load(file)
        write(description, read_weights(arguments[2]), arguments[3])
    else:
        raise Fault("SONDE_EINVAL", "sonde.onnx", "other arguments", "plan or write")


run(main)
