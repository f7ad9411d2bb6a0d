/*
 * anchor.h - anchors: values kept under a name that the user chooses, to read after each
 * call.
 *
 *     sonde_anchor_options options = {.size = sizeof options, .training = true,
 *                                     .mode = SONDE_ANCHOR_DEFAULT};
 *     sonde_anchors_create(&options, &anchors, &diag);
 *     sonde_anchors_add(anchors, "grad", "Gradient___w", SONDE_ANCHOR_ALL, 0, &diag);
 *     sonde_anchors_attach(anchors, catalogue, observer, &diag);
 *     ... sonde_observer_bind, and a call ...
 *     sonde_anchors_get(anchors, "grad", &view, &diag);
 *
 * A call makes D iterations of G micro-batches on R replicas (sonde_call_shape), in the
 * flat order k = (d * G + g) * R + r. An anchor keeps n values of a tensor of shape s:
 *
 *     mode      n           content
 *     All       D G R       every micro-batch, in flat order
 *     EveryN    D G R / N   the N-th, 2N-th ... micro-batch of a call, of every replica
 *     Final     R           the last micro-batch of the call
 *     Sum       R           the sum over the D G micro-batches, per replica
 *     Mean      R           that sum divided by D G
 *
 * EveryN counts micro-batches, from the start of the call. Its period N is checked
 * against D: 1 <= N <= D, and N divides D. Sum adds in the tensor's own dtype and in
 * order: integers wrap; float16 and bfloat16 are added as float32 and rounded at every
 * step. bool has no sum, and only floating dtypes have a mean.
 *
 * A tensor of the update pass (SONDE_PASS_UPDATE) has one value a step: its G is 1.
 * Every other tensor is expected at every micro-batch, parameters too.
 *
 * The shape of the result: concatenated on dimension 0, so (n s0, s1 ...), a scalar
 * becoming (n); s itself if n is 1. With axes: (D, G, R, s...) for All, (D / N, G, R,
 * s...) for EveryN, (R, s...) for the others, axes of length 1 left out.
 *
 * A set may hold anchors or a session's outputs. One thread at a time: the observer's.
 * All memory is allocated in sonde_observer_bind. Modes, counts and shapes are those of
 * PopTorch (outputMode, anchorTensor) and PopART; Mean is Sonde's.
 */
#ifndef SONDE_ANCHOR_H
#define SONDE_ANCHOR_H

#include <sonde/options.h>
#include <sonde/observer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values are fixed for ever. */
typedef enum sonde_anchor_mode {
    SONDE_ANCHOR_FINAL = 0,
    SONDE_ANCHOR_EVERYN = 1,
    SONDE_ANCHOR_ALL = 2,
    SONDE_ANCHOR_SUM = 3,
    SONDE_ANCHOR_DEFAULT =
        4, /* as the options say; in them: Final in training, else All */
    SONDE_ANCHOR_MEAN = 5
} sonde_anchor_mode;
/* "final", "everyn", "all", "sum", "default", "mean"; "?" for no mode. */
SONDE_API const char *sonde_anchor_mode_name(sonde_anchor_mode mode);
/* The names above in any case. Unknown: SONDE_EINVAL with the list. */
SONDE_API SONDE_CHECKED sonde_err sonde_anchor_mode_parse(const char *text,
                                                          sonde_anchor_mode *mode,
                                                          sonde_diag *diag);

typedef struct sonde_anchor_options {
    size_t size;   /* sizeof(sonde_anchor_options) */
    bool training; /* keeps values of train steps, else those of eval and predict steps */
    /* Of anchors with SONDE_ANCHOR_DEFAULT. DEFAULT here is FINAL in training and ALL
     * otherwise; a field left 0 is FINAL in both. */
    sonde_anchor_mode mode;
    int period; /* of EveryN, if `mode` is EveryN */
    bool axes;  /* separate axes for D, G and R; else concatenated */
} sonde_anchor_options;

typedef struct sonde_anchors sonde_anchors;

SONDE_API SONDE_CHECKED sonde_err sonde_anchors_create(
    const sonde_anchor_options *options, sonde_anchors **out, sonde_diag *diag);
/* After the last call of the observer that it is attached to. Accepts NULL. */
SONDE_API void sonde_anchors_destroy(sonde_anchors *anchors);

/*
 * Keeps tensor under name. A tensor may have several names. period is used with EVERYN
 * only. A name that is taken: SONDE_EEXIST; an invalid mode or period: SONDE_EINVAL;
 * after attach: SONDE_ESTATE. Strings are copied.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_anchors_add(sonde_anchors *anchors,
                                                    const char *name, const char *tensor,
                                                    sonde_anchor_mode mode, int period,
                                                    sonde_diag *diag);
/*
 * Adds the taps, once, before the observer is bound; catalogue is the observer's. An
 * unknown tensor: SONDE_ENOTFOUND. sonde_observer_bind returns the errors of periods,
 * shapes and dtypes that do not suit the call.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_anchors_attach(sonde_anchors *anchors,
                                                       const sonde_catalogue *catalogue,
                                                       sonde_observer *observer,
                                                       sonde_diag *diag);

/* The i-th name added; NULL: there are fewer. Borrowed. */
SONDE_API const char *sonde_anchors_name(const sonde_anchors *anchors, size_t i);
/*
 * The values of the last call, contiguous, borrowed until the next call begins. An
 * unknown name: SONDE_ENOTFOUND with the nearest; before the first call, or if the call
 * lacked some values: SONDE_ESTATE; if an observed value had another shape or dtype than
 * declared: SONDE_ESHAPE. Cost: a search by name; for Mean, one division per call.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_anchors_get(sonde_anchors *anchors,
                                                    const char *name, sonde_view *out,
                                                    sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
