/*
 * onnx_recipes.c - pointwise functions and losses as nodes of ONNX.
 *
 * A recipe lists nodes, separated by "; ": an op and its inputs. x, y and z are the op's
 * inputs, A and B its numbers and -A the first with the other sign, $2 is what the second
 * node makes, and the rest are numbers. The last node makes the op's output. An attribute
 * follows the op: LeakyRelu[alpha A].
 */
#include "base/macros.h"
#include "base/point.h"
#include "nn/onnx/onnx_write.h"

#include <stdio.h>
#include <string.h>

static const char *const recipes[][2] = {
    {"Relu", "Relu x"},
    {"Sigmoid", "Sigmoid x"},
    {"Tanh", "Tanh x"},
    {"Silu", "Sigmoid x; Mul x $1"},
    {"Gelu", "Gelu x"},
    {"GeluTanh", "Gelu[approximate tanh] x"},
    {"Mish", "Mish x"},
    {"LeakyRelu", "LeakyRelu[alpha A] x"},
    {"Elu", "Elu[alpha A] x"},
    {"Celu", "Celu[alpha A] x"},
    {"Selu", "Selu x"},
    {"Relu6", "Clip x 0 6"},
    {"Hardtanh", "Clip x A B"},
    {"Clamp", "Clip x A B"},
    {"Hardsigmoid", "HardSigmoid[alpha 0.16666667] x"},
    {"Hardswish", "HardSwish x"},
    {"Hardshrink", "Abs x; LessOrEqual $1 A; Where $2 0 x"},
    {"Softshrink", "Clip x -A A; Sub x $1"},
    {"Tanhshrink", "Tanh x; Sub x $1"},
    {"Softplus", "Mul x A; Softplus $1; Div $2 A; Greater $1 B; Where $4 x $3"},
    {"SoftplusPlain", "Softplus x"},
    {"Softsign", "Softsign x"},
    {"LogSigmoid", "Neg x; Softplus $1; Neg $2"},
    {"Threshold", "LessOrEqual x A; Where $1 B x"},
    {"Neg", "Neg x"},
    {"Abs", "Abs x"},
    {"Exp", "Exp x"},
    {"Expm1", "Exp x; Sub $1 1"},
    {"Log", "Log x"},
    {"Log1p", "Add x 1; Log $1"},
    {"Sqrt", "Sqrt x"},
    {"Rsqrt", "Sqrt x; Reciprocal $1"},
    {"Square", "Mul x x"},
    {"Reciprocal", "Reciprocal x"},
    {"Sin", "Sin x"},
    {"Cos", "Cos x"},
    {"Erf", "Erf x"},
    {"Erfc", "Erf x; Sub 1 $1"},
    {"Tan", "Tan x"},
    {"Asin", "Asin x"},
    {"Acos", "Acos x"},
    {"Atan", "Atan x"},
    {"Sinh", "Sinh x"},
    {"Cosh", "Cosh x"},
    {"Asinh", "Asinh x"},
    {"Atanh", "Atanh x"},
    {"Log2", "Log x; Mul $1 1.4426950408889634"},
    {"Log10", "Log x; Mul $1 0.43429448190325182"},
    {"Exp2", "Mul x 0.69314718055994531; Exp $1"},
    {"Sign", "Sign x"},
    {"Floor", "Floor x"},
    {"Ceil", "Ceil x"},
    {"Round", "Round x"},
    {"Trunc", "Abs x; Floor $1; Sign x; Mul $2 $3"},
    {"Pow", "Pow x A"},
    {"Identity", "Identity x"},
    {"Dropout", "Identity x"},
    {"Add", "Add x y"},
    {"Sub", "Sub x y"},
    {"Mul", "Mul x y"},
    {"Div", "Div x y"},
    {"Maximum", "Max x y"},
    {"Minimum", "Min x y"},
    {"FloatPower", "Pow x y"},
    {"Atan2", "Div x y; Atan $1; Less x 0; Where $3 -3.14159265 3.14159265; Less y 0; "
              "Where $5 $4 0; Add $2 $6; Abs x; Abs y; Add $8 $9; Equal $10 0; "
              "Where $11 0 $7"},
    {"MseLoss", "Sub x y; Mul $1 $1"},
    {"L1Loss", "Sub x y; Abs $1"},
    {"SmoothL1Loss", "Sub x y; Abs $1; Mul $1 $1; Mul $3 0.5; Div $4 A; Mul A 0.5; "
                     "Sub $2 $6; Less $2 A; Where $8 $5 $7"},
    {"HuberLoss", "Sub x y; Abs $1; Mul $1 $1; Mul $3 0.5; Mul A 0.5; Sub $2 $5; "
                  "Mul $6 A; LessOrEqual $2 A; Where $8 $4 $7"},
    {"BceLoss", "Log x; Max $1 -100; Sub 1 x; Log $3; Max $4 -100; Sub y 1; Mul $6 $5; "
                "Mul y $2; Sub $7 $8"},
    {"BceWithLogitsLoss", "Sub 1 y; Mul $1 x; Neg x; Softplus $3; Add $2 $4"},
    {"SoftMarginLoss", "Mul x y; Neg $1; Softplus $2"},
    {"KlDiv", "Log y; Sub $1 x; Mul y $2; Equal y 0; Mul x 0; Where $4 $5 $3"},
    {"KlDivLog", "Exp y; Sub y x; Mul $1 $2"},
    {"PoissonNllLoss", "Add x A; Log $1; Mul y $2; Sub x $3"},
    {"PoissonNllLossLog", "Exp x; Mul x y; Sub $1 $2"},
    {"HingeEmbeddingLoss", "Sub A x; Max $1 0; Equal y 1; Where $3 0 $2; Equal y -1; "
                           "Where $5 0 x; Add $4 $6"},
};

enum { MOST_NODES = 16, MOST_INPUTS = 3, WORD = 32 };

/* A recipe while it is read. */
typedef struct reader {
    sonde__onnx_writer *writer;
    const char *made[MOST_NODES];
    size_t count;
} reader;

static double number_of(const reader *r, const char *word)
{
    const float *own = r->writer->op->attrs.number;

    return strcmp(word, "A") == 0    ? (double)own[0]
           : strcmp(word, "B") == 0  ? (double)own[1]
           : strcmp(word, "-A") == 0 ? -(double)own[0]
                                     : sonde__strtod(word, NULL);
}

static const char *input_of(const reader *r, const char *word)
{
    if (word[0] >= 'x' && word[0] <= 'z') {
        return sonde__onnx_operand(r->writer, word[0] - 'x');
    }
    if (word[0] == '$') {
        return r->made[(size_t)sonde__strtod(word + 1, NULL) - 1];
    }
    return sonde__onnx_scalar(r->writer, number_of(r, word));
}

/* Copies text up to one of the ends; returns where that one is. */
static const char *take(const char *text, const char *ends, char word[WORD])
{
    const size_t length = SONDE_MIN(strcspn(text, ends), (size_t)WORD - 1);

    memcpy(word, text, length);
    word[length] = '\0';
    return text + length;
}

/* [alpha A] */
static const char *read_attribute(const reader *r, const char *text)
{
    char name[WORD], value[WORD];

    text = take(text + 1, " ", name);
    text = take(text + 1, "]", value);
    if (strcmp(value, "tanh") == 0) {
        sonde__onnx_set_text(r->writer, name, value);
    } else {
        sonde__onnx_set_float(r->writer, name, number_of(r, value));
    }
    return text + 1;
}

/* One node; returns what follows it. */
static const char *read_node(reader *r, const char *text)
{
    const char *inputs[MOST_INPUTS];
    char op[WORD], word[WORD];
    size_t count = 0;

    text = take(text, " [", op);
    text = *text == '[' ? read_attribute(r, text) : text;
    while (*text == ' ' && count < MOST_INPUTS) {
        text = take(text + 1, " ;", word);
        inputs[count++] = input_of(r, word);
    }
    if (*text == '\0') {
        (void)sonde__onnx_end(r->writer, op, 0, inputs, count);
        return NULL;
    }
    r->made[r->count++] = sonde__onnx_step(r->writer, op, 0, inputs, count);
    return text + 2;
}

/* The row of an op that has several. */
static const char *variant_of(const char *kind, const sonde__op_attrs *a)
{
    const bool plain = a->number[0] == 1.0F && a->number[1] == 20.0F;

    return strcmp(kind, "Gelu") == 0 && a->choice == 1        ? "GeluTanh"
           : strcmp(kind, "Softplus") == 0 && plain           ? "SoftplusPlain"
           : strcmp(kind, "KlDiv") == 0 && a->affine          ? "KlDivLog"
           : strcmp(kind, "PoissonNllLoss") == 0 && a->causal ? "" /* Stirling's part */
           : strcmp(kind, "PoissonNllLoss") == 0 && a->affine ? "PoissonNllLossLog"
                                                              : kind;
}

bool sonde__onnx_write_recipe(sonde__onnx_writer *writer)
{
    const char *kind = variant_of(writer->op->kind->name, &writer->op->attrs);

    for (size_t i = 0; i < SONDE_COUNT_OF(recipes); i++) {
        if (strcmp(recipes[i][0], kind) == 0) {
            reader r = {.writer = writer};
            const char *text = recipes[i][1];

            while (text != NULL && r.count < MOST_NODES) {
                text = read_node(&r, text);
            }
            return true;
        }
    }
    return false;
}
