/*
 * SoftmaxMisuse: scores, probabilities and log-probabilities, and what a loss makes of
 * them.
 */
#include "rules/stream.h"

enum { BATCH = 16, CLASSES = 5, STEPS = 4 };
enum {
    CROSS_ENTROPY,  /* of scores */
    NLL,            /* of log-probabilities */
    TWICE,          /* cross-entropy of probabilities */
    MISSING,        /* nll of scores */
    PROBABILITIES,  /* nll of probabilities */
    OVER_THE_BATCH, /* nll of what is normalised along the batch */
    SMOOTHED,       /* another loss altogether */
    HEADS
};

static double log_sum(const float *s, int n, int apart)
{
    double sum = 0.0;

    for (int i = 0; i < n; i++) {
        sum += exp((double)s[i * apart]);
    }
    return log(sum);
}

/* Rows, or columns, become log-probabilities. */
static void normalise(float *s, bool rows)
{
    float copy[BATCH * CLASSES];

    memcpy(copy, s, sizeof copy);
    for (int i = 0; i < BATCH; i++) {
        for (int c = 0; c < CLASSES; c++) {
            s[i * CLASSES + c] -=
                (float)(rows ? log_sum(copy + (ptrdiff_t)i * CLASSES, CLASSES, 1)
                             : log_sum(copy + c, BATCH, CLASSES));
        }
    }
}

static void head_step(stream *s, int head, uint32_t labels, uint32_t scores,
                      uint32_t loss)
{
    float y[BATCH], x[BATCH * CLASSES];
    double nll = 0.0, entropy = 0.0;

    for (int i = 0; i < BATCH * CLASSES; i++) {
        x[i] = 2.0F * stream_normal(s);
    }
    if (head == NLL || head == TWICE || head == PROBABILITIES || head == OVER_THE_BATCH) {
        normalise(x, head != OVER_THE_BATCH);
    }
    for (int i = 0; i < BATCH * CLASSES && (head == TWICE || head == PROBABILITIES);
         i++) {
        x[i] = expf(x[i]);
    }
    for (int i = 0; i < BATCH; i++) {
        const float *row = x + (ptrdiff_t)i * CLASSES;

        y[i] = (float)(i * 3 % CLASSES);
        nll -= (double)row[i * 3 % CLASSES] / BATCH;
        entropy += (log_sum(row, CLASSES, 1) - (double)row[i * 3 % CLASSES]) / BATCH;
    }
    stream_put(s, labels, y);
    stream_put(s, scores, x);
    stream_put_all(s, loss,
                   (float)(head == SMOOTHED                         ? 0.9 * entropy + 0.2
                           : head == CROSS_ENTROPY || head == TWICE ? entropy
                                                                    : nll));
    stream_end(s);
}

static void wrong_heads_are_found_and_right_ones_let_be(void **state)
{
    (void)state;
    for (int head = 0; head < HEADS; head++) {
        stream s;
        uint32_t labels = 0, scores = 0, loss = 0;

        stream_open(&s, "SoftmaxMisuse");
        labels = stream_declare(&s, "batch_labels", SONDE_ROLE_INPUT, BATCH, 0);
        scores = stream_declare(&s, "loss_input_0", SONDE_ROLE_OUTPUT, BATCH, CLASSES);
        loss = stream_declare(&s, "loss_output_0", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            head_step(&s, head, labels, scores, loss);
        }
        if (head == TWICE || head == MISSING || head == PROBABILITIES) {
            assert_string_equal(stream_expect(&s, "loss_input_0", 1).statistic,
                                head == TWICE ? "loss_floor" : "loss");
        } else if (head == OVER_THE_BATCH) {
            assert_int_equal(stream_expect(&s, "loss_input_0", 1).severity,
                             SONDE_SEVERITY_WARNING);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_heads_are_found_and_right_ones_let_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
