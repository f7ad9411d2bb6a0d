/*
 * place.c - one tensor at one place of both sides: hashes, elements, statistics; shards
 * and transposes; and whether rounding explains what differs.
 */
#include "diff/diff_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "diff/rounding.h"

#include <math.h>
#include <string.h>

/* Factors of diff.h: of rounding, of the growth from step to step, and of the yardstick;
 * and by how much one element may exceed the mean. */
#define ROUNDING 8.0
#define GROWTH 100.0
#define YARDSTICK 3.0
#define ONE_ELEMENT 16.0

/* --- verdicts ------------------------------------------------------------------------- */

/* The ratio that rounding explains here, and so the yardstick if it is larger. */
static double explained(sonde_diff *diff, double terms, double yardstick)
{
    const double rounding = ROUNDING * diff->unit * sqrt(SONDE_MAX(diff->terms, terms));

    return SONDE_MAX(SONDE_MAX(rounding, SONDE_MIN(GROWTH * diff->grown, 1.0)),
                     YARDSTICK * yardstick);
}

static double ratio(double difference, double size)
{
    return difference == 0.0 ? 0.0 : size > 0.0 ? difference / size : (double)INFINITY;
}

static bool is_number_exact(sonde_dtype dtype)
{
    return !sonde_dtype_is_float(dtype) && !sonde_dtype_is_complex(dtype);
}

static sonde_diff_kind judge(const sonde_diff *diff, const sonde__diff_row *row,
                             const sonde__diff_elements *sum, const sonde_difference *one)
{
    const double rms = sum->count > 0 ? sqrt(sum->size / (double)sum->count) : 0.0;
    const double near = SONDE_MAX(rms, fabs(sum->a));

    if (diff->options.tolerance) {
        return sum->beyond > 0 ? SONDE_DIFF_BEYOND : SONDE_DIFF_ROUNDING;
    }
    if (sum->nonfinite > 0 ||
        (sum->differing > 0 && is_number_exact(one->a_form.dtype))) {
        return SONDE_DIFF_BEYOND;
    }
    if (one->relative > one->explained) {
        return SONDE_DIFF_BEYOND;
    }
    /* A maximum that moves carries a gradient to another element: rounding, too. */
    return row->role != SONDE_ROLE_ACTIVATION_GRADIENT &&
                   sum->largest > ONE_ELEMENT * one->explained * near
               ? SONDE_DIFF_BEYOND
               : SONDE_DIFF_ROUNDING;
}

/* --- views ---------------------------------------------------------------------------- */

/* The part of a view at first ... first + extent - 1 of a dimension. */
static sonde__diff_operand cut(const sonde__diff_operand *whole, int dim, int64_t first,
                               int64_t extent)
{
    sonde__diff_operand part = *whole;

    part.view.data =
        (unsigned char *)whole->view.data +
        first * whole->view.stride[dim] * (int64_t)sonde_dtype_size(whole->view.dtype);
    part.view.shape[dim] = extent;
    return part;
}

static sonde__diff_operand transpose(const sonde__diff_operand *matrix)
{
    sonde__diff_operand other = *matrix;

    other.view.shape[0] = matrix->view.shape[1];
    other.view.shape[1] = matrix->view.shape[0];
    other.view.stride[0] = matrix->view.stride[1];
    other.view.stride[1] = matrix->view.stride[0];
    return other;
}

/* The dimension along which the parts make up the whole; -1: none. */
static int split_of(const sonde_view *whole, const sonde__diff_value *parts)
{
    for (int dim = 0; dim < whole->rank; dim++) {
        int64_t sum = 0;
        bool fits = true;

        for (size_t i = 0; i < parts->count && fits; i++) {
            const sonde_view *const part = &parts->part[i].view;

            fits = part->rank == whole->rank;
            for (int d = 0; d < whole->rank && fits; d++) {
                fits = d == dim || part->shape[d] == whole->shape[d];
            }
            sum += fits ? part->shape[dim] : 0;
        }
        if (fits && sum == whole->shape[dim]) {
            return dim;
        }
    }
    return -1;
}

/* --- elements ------------------------------------------------------------------------- */

static sonde_err add_pair(sonde_diff *diff, const sonde__diff_operand *a,
                          const sonde__diff_operand *b, int64_t first,
                          sonde__diff_elements *sum, sonde_diag *diag)
{
    const sonde__diff_tolerance tolerance = {diff->options.rtol, diff->options.atol};
    sonde__diff_elements part;
    SONDE__TRY(sonde__diff_compare(a, b, tolerance, diff->options.threads, &part, diag));
    part.bits = 1;
    sonde__diff_elements_add(sum, &part, first);
    return SONDE_OK;
}

static uint64_t bytes_of(const sonde_view *view)
{
    return (uint64_t)sonde_view_count(view) * sonde_dtype_size(view->dtype);
}

/* Whole against whole: of one shape, or transposed. *fits: false if it is neither. */
static sonde_err compare_two(sonde_diff *diff, const sonde__diff_operand *a,
                             const sonde__diff_operand *b, sonde__diff_elements *sum,
                             bool *transposed, bool *fits, sonde_diag *diag)
{
    const bool same = sonde_view_same_shape(&a->view, &b->view);
    const bool matrices = a->view.rank == 2 && b->view.rank == 2;
    const int threads = diff->options.threads;

    *transposed = false;
    *fits = true;
    if (same && a->view.dtype == b->view.dtype && sonde__diff_same_bits(a, b, threads)) {
        return SONDE_OK;
    }
    if (matrices && a->view.shape[0] == b->view.shape[1] &&
        a->view.shape[1] == b->view.shape[0]) {
        const sonde__diff_operand other = transpose(b);

        if (!same || (a->view.dtype == b->view.dtype &&
                      sonde__diff_same_bits(a, &other, threads))) {
            *transposed = true;
            return add_pair(diff, a, &other, 0, sum, diag);
        }
    }
    *fits = same;
    return same ? add_pair(diff, a, b, 0, sum, diag) : SONDE_OK;
}

/* A whole against parts; all of one shape with it are copies. swapped: the whole is B's. */
static sonde_err compare_parts(sonde_diff *diff, const sonde__diff_operand *whole,
                               const sonde__diff_value *parts, bool swapped,
                               sonde__diff_elements *sum, bool *fits, sonde_diag *diag)
{
    const int dim = split_of(&whole->view, parts);
    int64_t first = 0;
    bool transposed = false;

    *fits = true;
    for (size_t i = 0; i < parts->count && *fits; i++) {
        const sonde__diff_operand *const part = &parts->part[i];
        sonde__diff_operand piece = *whole;

        if (dim >= 0) {
            piece = cut(whole, dim, first, part->view.shape[dim]);
            first += part->view.shape[dim];
        }
        SONDE__TRY(compare_two(diff, swapped ? part : &piece, swapped ? &piece : part,
                               sum, &transposed, fits, diag));
    }
    return SONDE_OK;
}

static sonde_err compare_values(sonde_diff *diff, const sonde__diff_value *a,
                                const sonde__diff_value *b, sonde__diff_elements *sum,
                                sonde_difference *out, bool *fits, sonde_diag *diag)
{
    sonde__diff_elements_init(sum);
    out->a_form = a->part[0].view;
    out->b_form = b->part[0].view;
    out->a_form.data = out->b_form.data = NULL;
    if (a->count == 1 && b->count == 1) {
        return compare_two(diff, &a->part[0], &b->part[0], sum, &out->transposed, fits,
                           diag);
    }
    if (a->count == 1 || b->count == 1) {
        const bool swapped = a->count != 1;

        out->shards = (int)SONDE_MAX(a->count, b->count);
        return compare_parts(diff, swapped ? &b->part[0] : &a->part[0], swapped ? a : b,
                             swapped, sum, fits, diag);
    }
    *fits = a->count == b->count;
    for (size_t i = 0; i < a->count && *fits; i++) {
        SONDE__TRY(compare_two(diff, &a->part[i], &b->part[i], sum, &out->transposed,
                               fits, diag));
    }
    return SONDE_OK;
}

/* The ratio between A and the yardstick here; 0: it has no value of this shape. */
static sonde_err measure_yardstick(sonde_diff *diff, const sonde__diff_row *row,
                                   const sonde_trial_at *at, const sonde__diff_value *a,
                                   double *out, sonde_diag *diag)
{
    sonde__diff_value value;
    sonde__diff_elements sum;
    sonde_difference unused = {0};
    bool fits = false;

    *out = 0.0;
    if (row->entry[SONDE__DIFF_YARDSTICK] == NULL) {
        return SONDE_OK;
    }
    sonde_err err =
        sonde__diff_value_get(&diff->side[SONDE__DIFF_YARDSTICK],
                              row->entry[SONDE__DIFF_YARDSTICK], at, &value, diag);
    if (err == SONDE_ENOTFOUND) {
        return SONDE_OK;
    }
    SONDE__TRY(err);
    err = compare_values(diff, a, &value, &sum, &unused, &fits, diag);
    if (err == SONDE_OK && fits) {
        *out = ratio(sqrt(sum.squares), sqrt(sum.size));
    }
    sonde__diff_value_fini(&value);
    return err;
}

static void note_units(sonde_diff *diff, sonde_dtype a, sonde_dtype b)
{
    diff->unit = SONDE_MAX(diff->unit, sonde__diff_unit(a));
    diff->unit = SONDE_MAX(diff->unit, sonde__diff_unit(b));
}

static sonde_err judge_values(sonde_diff *diff, const sonde__diff_row *row,
                              const sonde_trial_at at[SONDE__DIFF_SIDES],
                              const sonde__diff_value *a, const sonde__diff_value *b,
                              sonde_difference *out, sonde_diag *diag)
{
    sonde__diff_elements sum;
    double yardstick = 0.0;
    bool fits = false;
    SONDE__TRY(compare_values(diff, a, b, &sum, out, &fits, diag));
    diff->report.bytes += bytes_of(&out->a_form) + bytes_of(&out->b_form);
    if (!fits) {
        out->kind = SONDE_DIFF_SHAPE;
        return SONDE_OK;
    }
    out->count = sum.count;
    if (sum.bits == 0) {
        return SONDE_OK;
    }
    if (sum.differing == 0 && sum.nonfinite == 0 && out->transposed) {
        return SONDE_OK; /* the same numbers */
    }
    SONDE__TRY(
        measure_yardstick(diff, row, &at[SONDE__DIFF_YARDSTICK], a, &yardstick, diag));
    out->differing = sum.differing;
    out->nonfinite = sum.nonfinite;
    out->largest = sum.largest;
    out->at = sum.at;
    out->a = sum.a;
    out->b = sum.b;
    out->relative = ratio(sqrt(sum.squares), sqrt(sum.size));
    out->explained = explained(diff, row->terms[at[SONDE__DIFF_A].mode], yardstick);
    out->kind = judge(diff, row, &sum, out);
    return SONDE_OK;
}

/* --- hashes --------------------------------------------------------------------------- */

/* Whether the hashes that both runs recorded say that the values are the same. */
static bool same_hashes(sonde_diff *diff, const sonde__diff_row *row,
                        const sonde_trial_at at[SONDE__DIFF_SIDES], sonde_difference *out)
{
    uint64_t hash[2] = {0, 0};
    sonde_view form[2];

    for (int i = 0; i < 2; i++) {
        if (at[i].worker < 0 ||
            sonde_trial_hash(diff->side[i].trial, row->entry[i]->id, &at[i], &hash[i],
                             &form[i], NULL) != SONDE_OK) {
            return false;
        }
    }
    note_units(diff, form[0].dtype, form[1].dtype);
    if (hash[0] != hash[1] || form[0].dtype != form[1].dtype ||
        !sonde_view_same_shape(&form[0], &form[1])) {
        return false;
    }
    out->count = (uint64_t)sonde_view_count(&form[0]);
    diff->report.bytes += 2 * bytes_of(&form[0]);
    diff->report.by_hash++;
    return true;
}

static sonde_err compare_raw(sonde_diff *diff, const sonde__diff_row *row,
                             const sonde_trial_at at[SONDE__DIFF_SIDES],
                             sonde_difference *out, sonde_diag *diag)
{
    sonde__diff_value a, b;

    out->how = SONDE_HOW_RAW;
    if (diff->side[SONDE__DIFF_A].trial != NULL && same_hashes(diff, row, at, out)) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde__diff_value_get(&diff->side[SONDE__DIFF_A],
                                     row->entry[SONDE__DIFF_A], &at[SONDE__DIFF_A], &a,
                                     diag));
    sonde_err err =
        sonde__diff_value_get(&diff->side[SONDE__DIFF_B], row->entry[SONDE__DIFF_B],
                              &at[SONDE__DIFF_B], &b, diag);
    if (err == SONDE_OK) {
        note_units(diff, a.part[0].view.dtype, b.part[0].view.dtype);
        err = judge_values(diff, row, at, &a, &b, out, diag);
        sonde__diff_value_fini(&b);
    }
    sonde__diff_value_fini(&a);
    return err;
}

/* --- statistics ----------------------------------------------------------------------- */

static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static bool same_signs(const sonde_vitals *a, const sonde_vitals *b)
{
    const bool norms = sonde_vitals_are_norms(a) || sonde_vitals_are_norms(b);

    return a->count == b->count && a->nan == b->nan && a->pos_inf == b->pos_inf &&
           a->neg_inf == b->neg_inf && same_number(a->abs_max, b->abs_max) &&
           (norms || (a->zero == b->zero && same_number(a->min, b->min) &&
                      same_number(a->max, b->max) && same_number(a->l1, b->l1) &&
                      same_number(a->m2, b->m2) && same_number(a->sumsq, b->sumsq) &&
                      same_number(a->sum, b->sum))) &&
           (!norms || sonde_vitals_are_norms(a) != sonde_vitals_are_norms(b) ||
            (same_number(a->sumsq, b->sumsq) && same_number(a->sum, b->sum)));
}

static uint64_t apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* rms(a - b) is at least |rms(a) - rms(b)| and |mean(a) - mean(b)|. */
static sonde_err compare_signs(sonde_diff *diff, const sonde__diff_row *row,
                               const sonde_trial_at at[SONDE__DIFF_SIDES],
                               sonde_difference *out, sonde_diag *diag)
{
    sonde_vitals v[2];

    out->how = SONDE_HOW_VITALS;
    for (int i = 0; i < 2; i++) {
        sonde_view *const form = i == 0 ? &out->a_form : &out->b_form;
        const sonde_tensor_info *const info = sonde_catalogue_info(
            sonde_trial_catalogue(diff->side[i].trial), row->entry[i]->id);

        SONDE__TRY(sonde_trial_vitals(diff->side[i].trial, row->entry[i]->id, &at[i],
                                      &v[i], diag));
        *form = sonde_view_of(info->dtype, info->rank, info->shape, NULL);
    }
    note_units(diff, out->a_form.dtype, out->b_form.dtype);
    out->count = v[0].count;
    if (same_signs(&v[0], &v[1])) {
        return SONDE_OK;
    }
    if (v[0].count != v[1].count) {
        out->kind = SONDE_DIFF_SHAPE;
        return SONDE_OK;
    }
    const double n = SONDE_MAX((double)v[0].count, 1.0);
    const double a = sqrt(v[0].sumsq / n), b = sqrt(v[1].sumsq / n);
    const double least = SONDE_MAX(fabs(a - b), fabs(v[0].mean - v[1].mean));

    out->at = -1;
    out->a = sqrt(v[0].sumsq);
    out->b = sqrt(v[1].sumsq);
    out->largest = fabs(v[0].abs_max - v[1].abs_max);
    out->nonfinite = apart(v[0].nan, v[1].nan) + apart(v[0].pos_inf, v[1].pos_inf) +
                     apart(v[0].neg_inf, v[1].neg_inf);
    out->relative = ratio(least, a);
    out->explained = explained(diff, row->terms[at[SONDE__DIFF_A].mode], 0.0);
    out->kind = out->nonfinite > 0 || is_number_exact(out->a_form.dtype) ||
                        out->relative > SONDE_MAX(out->explained, diff->options.rtol)
                    ? SONDE_DIFF_BEYOND
                    : SONDE_DIFF_ROUNDING;
    return SONDE_OK;
}

/* --- one place ------------------------------------------------------------------------ */

sonde_err sonde__diff_place(sonde_diff *diff, const sonde__diff_row *row,
                            const sonde_trial_at at[SONDE__DIFF_SIDES],
                            sonde_difference *out, bool *compared, sonde_diag *diag)
{
    unsigned both = SONDE_HOW_RAW, evidence = SONDE_HOW_RAW | SONDE_HOW_SIGNS;

    *out = (sonde_difference){.kind = SONDE_DIFF_SAME,
                              .name = row->out.name,
                              .other = row->out.other,
                              .mode = at[SONDE__DIFF_A].mode,
                              .step = at[SONDE__DIFF_A].step,
                              .worker = at[SONDE__DIFF_A].worker,
                              .micro_batch = at[SONDE__DIFF_A].micro_batch,
                              .replica = at[SONDE__DIFF_A].replica,
                              .shards = 1,
                              .at = -1};
    for (int i = 0; i < 2 && diff->side[SONDE__DIFF_A].trial != NULL; i++) {
        const unsigned how =
            sonde_trial_has(diff->side[i].trial, row->entry[i]->id, &at[i]);

        both &= how;
        evidence = (how & evidence) != 0 ? evidence : 0;
    }
    *compared = both != 0 || evidence != 0;
    if (both != 0) {
        return compare_raw(diff, row, at, out, diag);
    }
    return evidence != 0 ? compare_signs(diff, row, at, out, diag) : SONDE_OK;
}
