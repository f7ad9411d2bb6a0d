"""Pointwise functions and losses as nodes of ONNX.

A recipe lists nodes, separated by "; ": an op and its inputs. x, y and z are the op's inputs, A
and B its numbers and -A the first with the other sign, $2 is what the second node makes, and the
rest are numbers. The last node makes the op's output. An attribute follows the op:
LeakyRelu[alpha A].
"""

from typing import Any

RECIPES = {
    "Relu": "Relu x",
    "Sigmoid": "Sigmoid x",
    "Tanh": "Tanh x",
    "Silu": "Sigmoid x; Mul x $1",
    "Gelu": "Gelu x",
    "GeluTanh": "Gelu[approximate tanh] x",
    "Mish": "Mish x",
    "LeakyRelu": "LeakyRelu[alpha A] x",
    "Elu": "Elu[alpha A] x",
    "Celu": "Celu[alpha A] x",
    "Selu": "Selu x",
    "Relu6": "Clip x 0 6",
    "Hardtanh": "Clip x A B",
    "Clamp": "Clip x A B",
    "Hardsigmoid": "HardSigmoid[alpha 0.16666667] x",
    "Hardswish": "HardSwish x",
    "Hardshrink": "Abs x; LessOrEqual $1 A; Where $2 0 x",
    "Softshrink": "Clip x -A A; Sub x $1",
    "Tanhshrink": "Tanh x; Sub x $1",
    "Softplus": "Mul x A; Softplus $1; Div $2 A; Greater $1 B; Where $4 x $3",
    "SoftplusPlain": "Softplus x",
    "Softsign": "Softsign x",
    "LogSigmoid": "Neg x; Softplus $1; Neg $2",
    "Threshold": "LessOrEqual x A; Where $1 B x",
    "Neg": "Neg x",
    "Abs": "Abs x",
    "Exp": "Exp x",
    "Expm1": "Exp x; Sub $1 1",
    "Log": "Log x",
    "Log1p": "Add x 1; Log $1",
    "Sqrt": "Sqrt x",
    "Rsqrt": "Sqrt x; Reciprocal $1",
    "Square": "Mul x x",
    "Reciprocal": "Reciprocal x",
    "Sin": "Sin x",
    "Cos": "Cos x",
    "Erf": "Erf x",
    "Erfc": "Erf x; Sub 1 $1",
    "Tan": "Tan x",
    "Asin": "Asin x",
    "Acos": "Acos x",
    "Atan": "Atan x",
    "Sinh": "Sinh x",
    "Cosh": "Cosh x",
    "Asinh": "Asinh x",
    "Atanh": "Atanh x",
    "Log2": "Log x; Mul $1 1.4426950408889634",
    "Log10": "Log x; Mul $1 0.43429448190325182",
    "Exp2": "Mul x 0.69314718055994531; Exp $1",
    "Sign": "Sign x",
    "Floor": "Floor x",
    "Ceil": "Ceil x",
    "Round": "Round x",
    "Trunc": "Abs x; Floor $1; Sign x; Mul $2 $3",
    "Pow": "Pow x A",
    "Identity": "Identity x",
    "Dropout": "Identity x",
    "Add": "Add x y",
    "Sub": "Sub x y",
    "Mul": "Mul x y",
    "Div": "Div x y",
    "Maximum": "Max x y",
    "Minimum": "Min x y",
    "FloatPower": "Pow x y",
    "Atan2": "Div x y; Atan $1; Less x 0; Where $3 -3.14159265 3.14159265; Less y 0; Where "
             "$5 $4 0; Add $2 $6; Abs x; Abs y; Add $8 $9; Equal $10 0; Where $11 0 $7",
    "MseLoss": "Sub x y; Mul $1 $1",
    "L1Loss": "Sub x y; Abs $1",
    "SmoothL1Loss": "Sub x y; Abs $1; Mul $1 $1; Mul $3 0.5; Div $4 A; Mul A 0.5; Sub $2 $6; "
                    "Less $2 A; Where $8 $5 $7",
    "HuberLoss": "Sub x y; Abs $1; Mul $1 $1; Mul $3 0.5; Mul A 0.5; Sub $2 $5; Mul $6 A; "
                 "LessOrEqual $2 A; Where $8 $4 $7",
    "BceLoss": "Log x; Max $1 -100; Sub 1 x; Log $3; Max $4 -100; Sub y 1; Mul $6 $5; Mul y "
               "$2; Sub $7 $8",
    "BceWithLogitsLoss": "Sub 1 y; Mul $1 x; Neg x; Softplus $3; Add $2 $4",
    "SoftMarginLoss": "Mul x y; Neg $1; Softplus $2",
    "KlDiv": "Log y; Sub $1 x; Mul y $2; Equal y 0; Mul x 0; Where $4 $5 $3",
    "KlDivLog": "Exp y; Sub y x; Mul $1 $2",
    "PoissonNllLoss": "Add x A; Log $1; Mul y $2; Sub x $3",
    "PoissonNllLossLog": "Exp x; Mul x y; Sub $1 $2",
    "HingeEmbeddingLoss": "Sub A x; Max $1 0; Equal y 1; Where $3 0 $2; Equal y -1; Where $5 "
                          "0 x; Add $4 $6",
}


def recipe_of(kind: str, attrs: dict[str, Any]) -> str | None:
    """That of an op, or of its variant; None: there is none."""
    variant = kind
    if kind == "Gelu" and attrs["variant"] == 1:
        variant = "GeluTanh"
    elif kind == "Softplus" and attrs["number"] == [1, 20]:
        variant = "SoftplusPlain"
    elif kind == "KlDiv" and attrs["log"]:
        variant = "KlDivLog"
    elif kind == "PoissonNllLoss" and attrs["full"]:
        return None  # Stirling's part
    elif kind == "PoissonNllLoss" and attrs["log"]:
        variant = "PoissonNllLossLog"
    return RECIPES.get(variant)
