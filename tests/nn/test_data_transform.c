/*
 * test_data_transform.c - every transform against numbers worked out elsewhere or the
 * plain formula, lists that cannot be, and bit-exact floats on every instruction set.
 */
#include "nn/data_pipeline.h"

#include <math.h>

static void expect_error(const sonde_nn_transform *list, size_t count,
                         const sonde_nn_dataset_traits *traits, sonde_err err,
                         const char *words)
{
    sonde_nn_pipeline *pipeline = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    assert_int_equal(sonde_nn_pipeline_create(list, count, traits, &pipeline, &diag),
                     err);
    assert_null(pipeline);
    if (strstr(sonde_diag_line(&diag, line, sizeof line), words) == NULL) {
        fail_msg("'%s' lacks '%s'", line, words);
    }
}

static void no_transforms_copy(void **state)
{
    static const uint8_t pixels[5] = {9, 8, 7, 6, 5};
    uint8_t out[MOST];
    sonde_nn_pipeline *pipeline = NULL;

    (void)state;
    run(NULL, 0, traits_of(SONDE_U8, 1, 1, 5), pixels, 0, 0, 0, out);
    assert_memory_equal(out, pixels, 5);
    assert_int_equal(
        sonde_nn_pipeline_create(NULL, 0, traits_of(SONDE_U8, 1, 1, 5), &pipeline, NULL),
        SONDE_OK);
    assert_int_equal(sonde_nn_pipeline_get_info(pipeline).dtype, SONDE_U8);
    assert_int_equal(sonde_nn_pipeline_get_info(pipeline).rank, 3);
    assert_int_equal(sonde_nn_pipeline_get_info(pipeline).shape[2], 5);
    sonde_nn_pipeline_destroy(pipeline);
}

/* --- images ------------------------------------------------------------------------- */

/* Made with Pillow 13.0.0: Image.resize of v(y, x) = (37 x + 91 y + 13 x y) mod 256. */
static const struct {
    int height, width, to_height, to_width;
    sonde_nn_filter filter;
    uint8_t wanted[63];
} resized[] = {
    {9,
     11,
     4,
     3,
     SONDE_NN_BILINEAR,
     {119, 137, 112, 134, 138, 130, 127, 145, 147, 156, 150, 151}},
    {9,
     11,
     4,
     3,
     SONDE_NN_BICUBIC,
     {117, 139, 108, 137, 139, 130, 122, 146, 147, 159, 148, 151}},
    {5, 4, 7, 9, SONDE_NN_BILINEAR, {0,   6,   23,  39,  56,  72,  88,  105, 111,
                                     52,  59,  80,  99,  119, 138, 158, 178, 185,
                                     117, 126, 150, 170, 161, 152, 172, 196, 205,
                                     182, 193, 221, 234, 149, 63,  76,  104, 115,
                                     64,  77,  108, 136, 136, 136, 164, 195, 208,
                                     56,  70,  105, 136, 124, 111, 142, 177, 191,
                                     108, 123, 162, 188, 114, 39,  65,  104, 119}},
    {5, 4, 7, 9, SONDE_NN_BICUBIC, {0,   0,   14,  33,  50,  65,  84,  99,  106, 42,  49,
                                    67,  91,  119, 146, 170, 188, 196, 119, 131, 158, 179,
                                    170, 162, 182, 210, 222, 176, 191, 234, 240, 149, 57,
                                    63,  106, 121, 46,  61,  96,  127, 136, 145, 176, 211,
                                    226, 39,  56,  97,  130, 122, 114, 147, 188, 206, 105,
                                    126, 181, 200, 113, 25,  44,  99,  120}},
    {23, 31, 5, 5, SONDE_NN_BILINEAR, {133, 131, 129, 120, 123, 138, 139, 142, 136,
                                       139, 119, 120, 125, 133, 126, 114, 107, 102,
                                       131, 132, 122, 130, 114, 128, 135}},
    {23, 31, 5, 5, SONDE_NN_BICUBIC, {132, 130, 131, 117, 123, 140, 141, 144, 136,
                                      140, 118, 119, 125, 135, 125, 114, 104, 96,
                                      133, 133, 122, 134, 111, 129, 136}},
    {6,
     6,
     6,
     3,
     SONDE_NN_BILINEAR,
     {26, 93, 159, 127, 184, 86, 190, 116, 196, 71, 175, 123, 135, 107, 124, 126, 166,
      161}},
    {6,
     6,
     6,
     3,
     SONDE_NN_BICUBIC,
     {20, 93, 165, 121, 196, 76, 198, 103, 204, 62, 187, 118, 138, 103, 126, 121, 170,
      160}},
    {6,
     5,
     3,
     5,
     SONDE_NN_BILINEAR,
     {65, 111, 121, 167, 104, 100, 169, 111, 180, 122, 134, 117, 100, 193, 139}},
    {6,
     5,
     3,
     5,
     SONDE_NN_BICUBIC,
     {62, 106, 123, 167, 102, 100, 178, 111, 180, 122, 137, 113, 98, 193, 141}},
};

static void resize_gives_pillows_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof resized / sizeof *resized; i++) {
        const int h = resized[i].height, w = resized[i].width;
        const int oh = resized[i].to_height, ow = resized[i].to_width;
        const sonde_nn_transform list[] = {{.kind = SONDE_NN_RESIZE,
                                            .height = oh,
                                            .width = ow,
                                            .filter = resized[i].filter}};
        uint8_t in[2 * 23 * 31], out[MOST];

        for (int at = 0; at < 2 * h * w; at++) { /* two equal channels */
            const int y = at / w % h, x = at % w;

            in[at] = (uint8_t)(37 * x + 91 * y + 13 * x * y);
        }
        run(list, 1, traits_of(SONDE_U8, 2, h, w), in, 0, 0, 0, out);
        assert_memory_equal(out, resized[i].wanted, (size_t)(oh * ow));
        assert_memory_equal(out + oh * ow, resized[i].wanted, (size_t)(oh * ow));
    }
}

/* Made with Pillow: ImageOps.grayscale of v(c, y, x) = (37 x + 91 y + 13 x y + 101 c). */
static void grayscale_gives_pillows_numbers(void **state)
{
    static const uint8_t wanted[8] = {82, 119, 127, 164, 144, 194, 94, 144};
    const sonde_nn_transform list[] = {{.kind = SONDE_NN_GRAYSCALE},
                                       {.kind = SONDE_NN_RGB},
                                       {.kind = SONDE_NN_GRAYSCALE}};
    uint8_t in[24], out[MOST];

    (void)state;
    for (int at = 0; at < 24; at++) {
        const int y = at / 4 % 2, x = at % 4;

        in[at] = (uint8_t)(37 * x + 91 * y + 13 * x * y + at / 8 * 101);
    }
    run(list, 1, traits_of(SONDE_U8, 3, 2, 4), in, 0, 0, 0, out);
    assert_memory_equal(out, wanted, 8);
    run(list, 2, traits_of(SONDE_U8, 3, 2, 4), in, 0, 0, 0, out);
    assert_memory_equal(out + 16, wanted, 8);
    run(list, 3, traits_of(SONDE_U8, 3, 2, 4), in, 0, 0, 0, out);
    assert_memory_equal(out, wanted, 8);
}

static void light_images_are_inverted(void **state)
{
    const sonde_nn_transform list[] = {
        {.kind = SONDE_NN_INVERT_IF_LIGHT, .threshold = 200},
        {.kind = SONDE_NN_TO_FLOAT}};
    uint8_t in[6] = {10, 20, 30, 40, 200, 60}, out[MOST];
    float floats[MOST / sizeof(float)];

    (void)state;
    run(list, 1, traits_of(SONDE_U8, 1, 2, 3), in, 0, 0, 0, out);
    assert_memory_equal(out, in, 6);
    in[4] = 201;
    run(list, 1, traits_of(SONDE_U8, 1, 2, 3), in, 0, 0, 0, out);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(out[i], 255 - in[i]);
    }
    run(list, 2, traits_of(SONDE_U8, 1, 2, 3), in, 0, 0, 0, floats);
    assert_true(floats[0] == 245.0f / 255.0f);
    run((const sonde_nn_transform[]){{.kind = SONDE_NN_INVERT},
                                     {.kind = SONDE_NN_INVERT},
                                     {.kind = SONDE_NN_INVERT}},
        3, traits_of(SONDE_U8, 1, 2, 3), in, 0, 0, 0, out);
    assert_int_equal(out[5], 195);
}

static void crops_cut_the_middle(void **state)
{
    uint8_t in[2 * 4 * 5], out[MOST];
    float floats[2 * 4 * 5], cut[MOST / sizeof(float)];
    const sonde_nn_transform list[] = {
        {.kind = SONDE_NN_CENTER_CROP, .height = 2, .width = 3}};
    const sonde_nn_transform padded[] = {
        {.kind = SONDE_NN_CENTER_CROP, .height = 2, .width = 3, .padding = 2}};

    (void)state;
    for (int i = 0; i < 40; i++) {
        in[i] = (uint8_t)i;
        floats[i] = (float)i;
    }
    run(list, 1, traits_of(SONDE_U8, 2, 4, 5), in, 0, 0, 0, out);
    run(list, 1, traits_of(SONDE_F32, 2, 4, 5), floats, 0, 0, 0, cut);
    for (int i = 0; i < 12; i++) {
        const int wanted = i / 6 * 20 + (1 + i / 3 % 2) * 5 + 1 + i % 3;

        assert_int_equal(out[i], wanted);
        assert_true(cut[i] == (float)wanted);
    }
    run(padded, 1, traits_of(SONDE_U8, 2, 4, 5), in, 0, 0, 0, out);
    for (int i = 0; i < 12; i++) { /* the padding is around the middle */
        assert_int_equal(out[i], i / 6 * 20 + (1 + i / 3 % 2) * 5 + 1 + i % 3);
    }
}

/* Every place a padded crop can be put comes up, and shows the right pixels. */
static void random_crops_are_everywhere(void **state)
{
    const sonde_nn_transform list[] = {
        {.kind = SONDE_NN_RANDOM_CROP, .height = 3, .width = 3, .padding = 2}};
    uint8_t in[9], out[MOST];
    int seen[5][5] = {{0}};

    (void)state;
    for (int i = 0; i < 9; i++) {
        in[i] = (uint8_t)(i + 1);
    }
    for (int64_t index = 0; index < 2000; index++) {
        int found = 0;

        run(list, 1, traits_of(SONDE_U8, 1, 3, 3), in, 5, 1, index, out);
        for (int place = 0; place < 25; place++) {
            bool same = true;

            for (int i = 0; i < 9; i++) {
                const int y = i / 3 + place / 5 - 2, x = i % 3 + place % 5 - 2;
                const bool inside = y >= 0 && y < 3 && x >= 0 && x < 3;

                same = same && out[i] == (inside ? in[y * 3 + x] : 0);
            }
            if (same) {
                seen[place / 5][place % 5]++;
                found++;
            }
        }
        assert_int_equal(found, 1);
    }
    for (int place = 0; place < 25; place++) {
        assert_in_range(seen[place / 5][place % 5], 40, 130); /* 80 expected, sigma 9 */
    }
}

static void flips_follow_their_probability(void **state)
{
    static const uint8_t in[6] = {1, 2, 3, 4, 5, 6}, turned[6] = {3, 2, 1, 6, 5, 4};
    const sonde_nn_transform half[] = {{.kind = SONDE_NN_FLIP, .probability = 0.5f},
                                       {.kind = SONDE_NN_TO_FLOAT}};
    const sonde_nn_transform never[] = {{.kind = SONDE_NN_FLIP, .probability = 0.0f}};
    const sonde_nn_transform always[] = {{.kind = SONDE_NN_FLIP, .probability = 1.0f}};
    uint8_t out[MOST], again[MOST];
    int flipped = 0, changed = 0;

    (void)state;
    for (int64_t index = 0; index < 1000; index++) {
        run(half, 1, traits_of(SONDE_U8, 1, 2, 3), in, 7, 3, index, out);
        assert_true(memcmp(out, in, 6) == 0 || memcmp(out, turned, 6) == 0);
        flipped += out[0] == 3 ? 1 : 0;
        run(half, 1, traits_of(SONDE_U8, 1, 2, 3), in, 7, 3, index, again);
        assert_memory_equal(out, again, 6);
        run(half, 1, traits_of(SONDE_U8, 1, 2, 3), in, 7, 4, index, again);
        changed += out[0] != again[0] ? 1 : 0;
    }
    assert_in_range(flipped, 430, 570);
    assert_in_range(changed, 430, 570); /* another epoch draws anew */
    run(never, 1, traits_of(SONDE_U8, 1, 2, 3), in, 7, 3, 0, out);
    assert_memory_equal(out, in, 6);
    run(always, 1, traits_of(SONDE_U8, 1, 2, 3), in, 7, 3, 0, out);
    assert_memory_equal(out, turned, 6);
}

/* A photo to what Fashion-MNIST looks like, seed 003's way; steps that do nothing for
 * this image are in between. */
static void a_whole_list_runs_in_order(void **state)
{
    static const float half = 0.5f;
    const sonde_nn_transform list[] = {
        {.kind = SONDE_NN_RESIZE, .height = 4, .width = 4, .filter = SONDE_NN_BICUBIC},
        {.kind = SONDE_NN_RGB},
        {.kind = SONDE_NN_GRAYSCALE},
        {.kind = SONDE_NN_GRAYSCALE},
        {.kind = SONDE_NN_INVERT_IF_LIGHT, .threshold = 200},
        {.kind = SONDE_NN_FLIP, .probability = 1.0f},
        {.kind = SONDE_NN_TO_FLOAT},
        {.kind = SONDE_NN_NORMALIZE, .channels = 1, .mean = {half}, .std = {half}},
    };
    uint8_t in[3 * 8 * 8];
    float out[MOST / sizeof(float)];

    (void)state;
    memset(in, 255, sizeof in);
    run(list, 8, traits_of(SONDE_U8, 3, 8, 8), in, 0, 0, 0, out);
    for (int i = 0; i < 16; i++) {
        assert_true(out[i] == -1.0f);
    }
}

/* A to_float of floats changes nothing, and no normalize is lost in it. */
static void floats_stay_floats(void **state)
{
    const sonde_nn_transform list[] = {
        {.kind = SONDE_NN_TO_FLOAT},
        {.kind = SONDE_NN_TO_FLOAT},
        {.kind = SONDE_NN_NORMALIZE, .channels = 1, .mean = {1.0f}, .std = {0.5f}}};
    const uint8_t in[4] = {255, 0, 255, 0};
    float out[MOST / sizeof(float)];

    (void)state;
    run(list, 3, traits_of(SONDE_U8, 1, 2, 2), in, 0, 0, 0, out);
    for (int i = 0; i < 4; i++) {
        assert_true(out[i] == (i % 2 == 0 ? 0.0f : -2.0f));
    }
}

/* --- what cannot be ----------------------------------------------------------------- */

static void impossible_lists_are_refused(void **state)
{
    static const float good = 0.5f, zero = 0.0f, many[3] = {0.5f, 0.5f, 0.5f};
    const float nan = NAN;
    sonde_nn_dataset_traits flat = {.dtype = SONDE_U8, .rank = 1, .shape = {9, 0, 0}};
    sonde_nn_transform odd = (sonde_nn_transform){.kind = SONDE_NN_INVERT};

    (void)state;
    expect_error(
        (sonde_nn_transform[]){
            {.kind = SONDE_NN_NORMALIZE, .channels = 1, .mean = {good}, .std = {good}}},
        1, traits_of(SONDE_U8, 1, 4, 4), SONDE_EINVAL,
        "transform 1 (normalize): works on float32, not on uint8 (expected to_float");
    expect_error(
        (sonde_nn_transform[]){
            {.kind = SONDE_NN_TO_FLOAT},
            {.kind = SONDE_NN_NORMALIZE, .channels = 1, .mean = {good}, .std = {zero}}},
        2, traits_of(SONDE_U8, 1, 4, 4), SONDE_EINVAL, "mean 0.5, std 0");
    expect_error(
        (sonde_nn_transform[]){
            {.kind = SONDE_NN_TO_FLOAT},
            {.kind = SONDE_NN_NORMALIZE, .channels = 1, .mean = {nan}, .std = {good}}},
        2, traits_of(SONDE_U8, 1, 4, 4), SONDE_EINVAL, "mean nan");
    expect_error((sonde_nn_transform[]){{.kind = SONDE_NN_TO_FLOAT},
                                        {.kind = SONDE_NN_NORMALIZE,
                                         .channels = 3,
                                         .mean = {many[0], many[1], many[2]},
                                         .std = {many[0], many[1], many[2]}}},
                 2, traits_of(SONDE_U8, 1, 4, 4), SONDE_ESHAPE, "3 means for 1 channels");
    expect_error((sonde_nn_transform[]){{.kind = SONDE_NN_TO_FLOAT},
                                        {.kind = SONDE_NN_RESIZE,
                                         .height = 2,
                                         .width = 2,
                                         .filter = SONDE_NN_BILINEAR}},
                 2, traits_of(SONDE_U8, 1, 4, 4), SONDE_EINVAL,
                 "transform 2 (resize): works on bytes, not on float32");
    expect_error((sonde_nn_transform[]){{.kind = SONDE_NN_RESIZE,
                                         .height = 0,
                                         .width = 2,
                                         .filter = SONDE_NN_BILINEAR}},
                 1, traits_of(SONDE_U8, 1, 4, 4), SONDE_EINVAL, "0 x 2, padding 0");
    expect_error((sonde_nn_transform[]){{.kind = SONDE_NN_RESIZE,
                                         .height = 2,
                                         .width = 2,
                                         .filter = (sonde_nn_filter)9}},
                 1, traits_of(SONDE_U8, 1, 4, 4), SONDE_EINVAL, "filter 9");
    expect_error(
        (sonde_nn_transform[]){{.kind = SONDE_NN_CENTER_CROP, .height = 5, .width = 4}},
        1, traits_of(SONDE_U8, 1, 4, 4), SONDE_ESHAPE, "5 x 4 out of 4 x 4");
    expect_error((sonde_nn_transform[]){{.kind = SONDE_NN_GRAYSCALE}}, 1,
                 traits_of(SONDE_U8, 2, 4, 4), SONDE_ESHAPE, "images have 2 channels");
    expect_error(
        (sonde_nn_transform[]){{.kind = SONDE_NN_INVERT_IF_LIGHT, .threshold = 9}}, 1,
        traits_of(SONDE_U8, 3, 4, 4), SONDE_ESHAPE, "looks at gray images");
    expect_error(
        (sonde_nn_transform[]){{.kind = SONDE_NN_INVERT_IF_LIGHT, .threshold = 9}}, 1,
        traits_of(SONDE_U8, 1, 1, 4), SONDE_ESHAPE, "no pixel (1, 1)");
    expect_error((sonde_nn_transform[]){{.kind = SONDE_NN_TO_FLOAT},
                                        {.kind = SONDE_NN_NORMALIZE, .channels = 5}},
                 2, traits_of(SONDE_U8, 5, 4, 4), SONDE_EINVAL, "5 means");
    expect_error((sonde_nn_transform[]){{.kind = SONDE_NN_TO_FLOAT}}, 1,
                 traits_of(SONDE_I64, 1, 4, 4), SONDE_EINVAL, "samples are int64");
    expect_error((sonde_nn_transform[]){{.kind = SONDE_NN_FLIP, .probability = 1.5f}}, 1,
                 traits_of(SONDE_U8, 1, 1, 4), SONDE_EINVAL, "probability 1.5");
    expect_error((sonde_nn_transform[]){{.kind = SONDE_NN_FLIP, .probability = 0.5f}}, 1,
                 &flat, SONDE_ESHAPE, "samples have shape (9)");
    odd.kind = (sonde_nn_transform_kind)77;
    expect_error(&odd, 1, &flat, SONDE_EINVAL, "unknown kind 77");
    expect_error(&odd, 17, &flat, SONDE_EINVAL, "17 transforms");
}

static void varied_images_must_be_made_alike(void **state)
{
    sonde_nn_dataset_traits traits = *traits_of(SONDE_U8, 3, 9, 9);
    const sonde_nn_transform list[] = {
        {.kind = SONDE_NN_RANDOM_CROP, .height = 4, .width = 4, .padding = 0},
        {.kind = SONDE_NN_RGB}};
    sonde_nn_sample small = {.shape = {1, 3, 5}};
    sonde_nn_pipeline *pipeline = NULL;
    sonde_diag diag = {0};
    uint8_t pixels[243] = {0}, out[48], scratch[4096];

    (void)state;
    traits.varied_size = true;
    traits.varied_channels = true;
    expect_error(list, 0, &traits, SONDE_ESHAPE, "images differ in size");
    expect_error(list, 1, &traits, SONDE_ESHAPE, "images differ in channels");
    assert_int_equal(sonde_nn_pipeline_create(list, 2, &traits, &pipeline, NULL),
                     SONDE_OK);
    assert_in_range(sonde_nn_pipeline_get_info(pipeline).scratch, 1, sizeof scratch);
    small.data = pixels;
    assert_int_equal(
        sonde_nn_pipeline_run(pipeline, &small, 0, 0, 0, scratch, out, &diag),
        SONDE_ESHAPE);
    assert_string_equal(diag.found, "a crop of 4 x 4 from an image of 3 x 5");
    small.shape[1] = 5;
    assert_int_equal(
        sonde_nn_pipeline_run(pipeline, &small, 0, 0, 0, scratch, out, &diag), SONDE_OK);
    sonde_nn_pipeline_destroy(pipeline);
}

/* Sizes of a set are known from its largest image alone. */
static void a_small_image_is_not_inverted(void **state)
{
    sonde_nn_dataset_traits traits = *traits_of(SONDE_U8, 1, 4, 4);
    const sonde_nn_transform list[] = {
        {.kind = SONDE_NN_INVERT_IF_LIGHT, .threshold = 9},
        {.kind = SONDE_NN_CENTER_CROP, .height = 1, .width = 1}};
    const uint8_t pixel = 200;
    const sonde_nn_sample small = {.data = &pixel, .shape = {1, 1, 1}};
    sonde_nn_pipeline *pipeline = NULL;
    sonde_diag diag = {0};
    uint8_t out[16], scratch[4096];

    (void)state;
    traits.varied_size = true;
    assert_int_equal(sonde_nn_pipeline_create(list, 2, &traits, &pipeline, NULL),
                     SONDE_OK);
    assert_int_equal(
        sonde_nn_pipeline_run(pipeline, &small, 0, 0, 0, scratch, out, &diag),
        SONDE_ESHAPE);
    assert_string_equal(diag.found, "an image of 1 x 1 has no pixel (1, 1)");
    sonde_nn_pipeline_destroy(pipeline);
}

static sonde_err compose(void *user)
{
    sonde_nn_pipeline *pipeline = NULL;
    const sonde_nn_transform list[] = {{.kind = SONDE_NN_TO_FLOAT}};
    const sonde_err err = sonde_nn_pipeline_create(list, 1, user, &pipeline, NULL);

    sonde_nn_pipeline_destroy(pipeline);
    return err;
}

static void every_allocation_may_fail(void **state)
{
    sonde_nn_dataset_traits traits = *traits_of(SONDE_U8, 3, 9, 9);

    (void)state;
    assert_int_equal(data_fail_allocations(compose, &traits), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_transforms_copy),
        cmocka_unit_test(resize_gives_pillows_numbers),
        cmocka_unit_test(grayscale_gives_pillows_numbers),
        cmocka_unit_test(light_images_are_inverted),
        cmocka_unit_test(crops_cut_the_middle),
        cmocka_unit_test(random_crops_are_everywhere),
        cmocka_unit_test(flips_follow_their_probability),
        cmocka_unit_test(a_whole_list_runs_in_order),
        cmocka_unit_test(floats_stay_floats),
        cmocka_unit_test(a_small_image_is_not_inverted),
        cmocka_unit_test(impossible_lists_are_refused),
        cmocka_unit_test(varied_images_must_be_made_alike),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
