/*
 * symmetric_rows.c - SymmetricUnits: the rows of a weight that equal others.
 *
 * A row is compared by a hash of its elements. Rows that are suspected already are compared
 * after rounding, since equal units part by rounding errors. Rows of one magnitude (an update
 * by the sign of the gradient, from 0) meet by chance: they have to equal the same row at
 * `patience` looks in a row.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_values.h"
#include "rules/builtin/symmetric.h"
#include "rules/suspicion.h"

#include <math.h>
#include <stdlib.h>

enum { LONG = 8 }; /* shorter rows are equal by chance */
#define ALIKE 1e-4 /* of magnitudes */

static int by_hash(const void *a, const void *b)
{
    const sonde__builtin_symmetric_row *x = a, *y = b;

    return x->hash != y->hash ? (x->hash > y->hash) - (x->hash < y->hash)
                              : (x->index > y->index) - (x->index < y->index);
}

/* Percent of rows that equal another; a row of zeros has the hash 0 and equals none.
 * *lasting: percent of those that equalled the same row at the look before. */
static double duplicates(sonde__builtin_symmetric_memory *memory, size_t count,
                         double *lasting)
{
    const sonde__builtin_symmetric_row *rows = memory->rows;
    size_t same = 0, again = 0;

    qsort(memory->rows, count, sizeof *rows, by_hash);
    for (size_t i = 0; i < count;) {
        size_t end = i + 1;

        while (end < count && rows[end].hash == rows[i].hash) {
            end++;
        }
        for (size_t k = i; k < end; k++) {
            const bool equal = rows[i].hash != 0 && end - i > 1;
            const uint32_t first = equal ? rows[i].index + 1 : 0;

            same += equal;
            again += equal && memory->same[rows[k].index] == first;
            memory->same[rows[k].index] = first;
        }
        i = end;
    }
    *lasting = 100.0 * (double)again / (double)count;
    return 100.0 * (double)same / (double)count;
}

/* Rounded to a thousandth: rows of equal units part by rounding errors. */
static double rounded(double value)
{
    int exponent = 0;
    const double part = frexp(value, &exponent);

    return isfinite(value) ? ldexp(round(part * 1024.0), exponent) : value;
}

void sonde__builtin_symmetric_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                                      const sonde_observation *seen)
{
    const sonde__builtin_symmetric *state = sonde_rule_state(run);
    const sonde_tensor_info *info = sonde_rule_info(run, tensor->id);
    sonde__builtin_symmetric_memory *memory = tensor->memory;
    const int64_t rows = info->shape[0];
    sonde__builtin_reader reader;
    double values[SONDE__CHUNK];
    double nonzero = 0.0, sum = 0.0, square = 0.0, lasting = 0.0;
    int64_t length = 0, at = 0;
    bool finite = true, quick = false;
    const bool rough = sonde__rule_suspects(run, sonde__builtin_index(run, tensor));

    if (seen->view == NULL || seen->view->rank < 2 || seen->view->shape[0] != rows ||
        seen->at.micro_batch != 0 || seen->at.replica != 0 ||
        memory->seen_raw >= state->steps || sonde_view_count(seen->view) == 0) {
        return;
    }
    memory->seen_raw++;
    length = sonde_view_count(seen->view) / rows;
    for (int64_t r = 0; r < rows; r++) {
        memory->rows[r] = (sonde__builtin_symmetric_row){.index = (uint32_t)r};
    }
    sonde__builtin_reader_init(&reader, seen->view);
    for (size_t n = sonde__builtin_reader_take(&reader, values); n > 0;
         n = sonde__builtin_reader_take(&reader, values)) {
        for (size_t i = 0; i < n; i++, at++) {
            union {
                double value;
                uint64_t bits;
            } element = {.value =
                             (rough ? rounded(values[i]) : values[i]) + 0.0}; /* no -0 */
            uint64_t *hash = &memory->rows[at / length].hash;

            finite = finite && isfinite(values[i]);
            if (element.bits != 0 || *hash != 0) {
                *hash = (*hash ^ (element.bits + (uint64_t)(at % length))) *
                            UINT64_C(0x9E3779B97F4A7C15) +
                        1;
            }
            nonzero += values[i] != 0.0;
            sum += fabs(values[i]);
            square += values[i] * values[i];
        }
    }
    if (!finite) {
        return; /* NonFinite's */
    }
    quick = sum * sum < (1.0 - ALIKE) * nonzero * square;
    memory->equal = duplicates(memory, (size_t)rows, &lasting);
    memory->lasting = lasting >= state->share ? memory->lasting + 1 : 0;
    if (length >= LONG && (quick || memory->lasting + 1 >= state->patience)) {
        memory->percent = memory->equal;
    }
}
