/*
 * test_files.c - kinds of files, sizes, places that cannot be written; and every picture
 * on pages of every size, and with every allocation failing.
 */
#include "checks.h"
#include "base/macros.h"

#include "alloc_failure.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>

static const char *const long_names[] = {
    "T-shirt",
    "domestic short-haired cat (Felis catus)",
    "mitochondrial_inner_membrane_translocase",
    "Pneumonoultramicroscopicsilicovolcanoconiosis",
    "x",
    "\xc3\x9c"
    "berma\xc3\x9f",
};

/* One of each picture, small, with all that they can carry. */
typedef struct samples {
    float image[6][3][5];
    uint32_t counts[6][6];
    sonde_histogram histogram[3];
    double loss[12];
    double heat[3][5];
    sonde_plot_series series[3];
    sonde_plot_panel panels[2];
    sonde_images_plot images;
    sonde_panels_plot before_after;
    sonde_confusion_plot confusion;
    sonde_histogram_plot gradients;
    sonde_curves_plot curves;
    sonde_heatmap_plot heatmap;
} samples;

static void make_data(samples *s)
{
    for (int i = 0; i < 36; i++) {
        s->counts[i / 6][i % 6] = (uint32_t)(i * i * 100);
    }
    for (int i = 0; i < 90; i++) {
        s->image[i / 15][i / 5 % 3][i % 5] = (float)i;
    }
    s->image[2][1][1] = NAN;
    for (int i = 0; i < 3; i++) {
        s->histogram[i] = (sonde_histogram){
            .bins = 5, .lower = -30 - i, .upper = -3 + i, .counts = {9, 1, 4, 30, 12345}};
        for (int k = 0; k < 5; k++) {
            s->heat[i][k] = (double)s->histogram[i].counts[(k + i) % 5];
        }
    }
    for (int i = 0; i < 12; i++) {
        s->loss[i] = i == 5 ? (double)NAN : 12345.0 / (i + 1);
    }
}

static void make_samples(samples *s, const sonde_plot_page *page)
{
    const int64_t points = 12;

    *s = (samples){0};
    make_data(s);
    for (int i = 0; i < 3; i++) {
        s->series[i] = (sonde_plot_series){
            .name = long_names[i], .y = sonde_view_of(SONDE_F64, 1, &points, s->loss)};
    }
    for (int i = 0; i < 2; i++) {
        s->panels[i] = (sonde_plot_panel){
            .title = long_names[2 * i],
            .image = sonde_view_of(SONDE_F32, 2, (int64_t[]){3, 5}, s->image[2 * i])};
    }
    s->images = (sonde_images_plot){
        .page = *page,
        .images = sonde_view_of(SONDE_F32, 3, (int64_t[]){6, 3, 5}, s->image),
        .labels = long_names};
    s->before_after = (sonde_panels_plot){
        .page = *page, .panels = s->panels, .count = 2, .arrows = true};
    s->confusion = (sonde_confusion_plot){
        .page = *page,
        .counts = sonde_view_of(SONDE_U32, 2, (int64_t[]){6, 6}, s->counts),
        .classes = long_names};
    s->gradients = (sonde_histogram_plot){.page = *page,
                                          .histogram = s->histogram,
                                          .x_label = "log2 of the gradient's magnitude",
                                          .zeros = 4};
    s->curves = (sonde_curves_plot){.page = *page,
                                    .series = s->series,
                                    .count = 3,
                                    .x_label = "Step",
                                    .y_label = "Cross-entropy over the batch",
                                    .smooth = 0.5};
    s->heatmap = (sonde_heatmap_plot){.page = *page,
                                      .counts = s->heat[0],
                                      .count = 3,
                                      .rows = 5,
                                      .low = -30,
                                      .high = -3,
                                      .y_label = "log2 of the gradient's magnitude",
                                      .median = true};
}

enum { PICTURES = 6 };

static sonde_err build_sample(const samples *s, int picture, double width,
                              sonde__plot_scene *scene)
{
    switch (picture) {
    case 0:
        return build_scene(sonde__plot_build_images, &s->images, width, scene);
    case 1:
        return build_scene(sonde__plot_build_panels, &s->before_after, width, scene);
    case 2:
        return build_scene(sonde__plot_build_confusion, &s->confusion, width, scene);
    case 3:
        return build_scene(sonde__plot_build_histogram, &s->gradients, width, scene);
    case 4:
        return build_scene(sonde__plot_build_curves, &s->curves, width, scene);
    default:
        return build_scene(sonde__plot_build_heatmap, &s->heatmap, width, scene);
    }
}

static sonde_err draw_sample(const samples *s, int picture, const char *path,
                             sonde_diag *diag)
{
    switch (picture) {
    case 0:
        return sonde_plot_images(path, &s->images, diag);
    case 1:
        return sonde_plot_panels(path, &s->before_after, diag);
    case 2:
        return sonde_plot_confusion(path, &s->confusion, diag);
    case 3:
        return sonde_plot_histogram(path, &s->gradients, diag);
    case 4:
        return sonde_plot_curves(path, &s->curves, diag);
    default:
        return sonde_plot_heatmap(path, &s->heatmap, diag);
    }
}

static size_t count_files(void)
{
    DIR *const dir = opendir(folder);
    size_t count = 0;

    assert_non_null(dir);
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    (void)closedir(dir);
    return count;
}

/* --- kinds -------------------------------------------------------------------------- */

static void test_endings(void **state)
{
    static const char *const bad[] = {"a.pdf", "png",  "a.png.", "dir.png/a",
                                      "",      "dir/", "a.svgz", "a"};
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_plot_check_path("a.png", &diag), SONDE_OK);
    assert_int_equal(sonde_plot_check_path("x/y.z/A.SVG", &diag), SONDE_OK);
    for (size_t i = 0; i < SONDE_COUNT_OF(bad); i++) {
        assert_int_equal(sonde_plot_check_path(bad[i], &diag), SONDE_EINVAL);
        assert_string_equal(diag.where, bad[i]);
        assert_non_null(strstr(diag.expected, ".png"));
        assert_non_null(strstr(diag.expected, ".svg"));
    }
    assert_int_equal(sonde_plot_check_path(NULL, &diag), SONDE_EINVAL);
    assert_int_equal(sonde_plot_check_path("a.pdf", NULL), SONDE_EINVAL);
}

static void test_png_of_each(void **state)
{
    sonde_plot_page page = {.title = "Title", .note = "A note."};
    samples s;
    sonde_diag diag = {0};

    (void)state;
    for (int picture = 0; picture < PICTURES; picture++) {
        decoded once = {0}, twice = {0};

        page.scale = 0;
        make_samples(&s, &page);
        assert_int_equal(draw_sample(&s, picture, in_folder("p.png"), &diag), SONDE_OK);
        once = read_png(file_name);
        page.scale = 2;
        make_samples(&s, &page);
        assert_int_equal(draw_sample(&s, picture, file_name, &diag), SONDE_OK);
        twice = read_png(file_name);
        assert_int_equal(once.width, 900);
        assert_int_equal(twice.width, 2 * once.width);
        assert_int_equal(twice.height, 2 * once.height);
        assert_int_equal(pixel(&once, 1, 1), 0xffffff);
        free(once.rgb);
        free(twice.rgb);
    }
}

static void test_svg_of_each(void **state)
{
    const sonde_plot_page page = {.title = "A < B & \"C\"", .width = 800, .height = 500};
    samples s;
    sonde_diag diag = {0};

    (void)state;
    make_samples(&s, &page);
    for (int picture = 0; picture < PICTURES; picture++) {
        size_t size = 0;
        char *svg = NULL;
        const char *desc = NULL, *end = NULL;

        assert_int_equal(draw_sample(&s, picture, in_folder("p.svg"), &diag), SONDE_OK);
        svg = slurp(file_name, &size);
        assert_int_equal(strlen(svg), size);
        assert_memory_equal(svg, "<?xml", 5);
        assert_non_null(strstr(svg, "width=\"800px\" height=\"500px\""));
        assert_string_equal(svg + size - 7, "</svg>\n");
        desc = strstr(svg, "<desc>");
        end = strstr(svg, "</desc>");
        assert_non_null(desc);
        assert_true(end > desc);
        assert_memory_equal(desc, "<desc>A &lt; B &amp; \"C\"\n", 25);
        if (picture == 2) {
            assert_non_null(strstr(desc, "\nTrue label\n"));
            assert_non_null(strstr(desc, "\n\xc3\x9c"
                                         "berma\xc3\x9f\n"));
        }
        free(svg);
    }
}

/* --- places ------------------------------------------------------------------------- */

static void test_places(void **state)
{
    const sonde_plot_page page = {0};
    samples s;
    sonde_diag diag = {0};
    char path[400] = "";

    (void)state;
    make_samples(&s, &page);
    (void)snprintf(path, sizeof path, "%s/missing/a.png", folder);
    assert_int_equal(draw_sample(&s, 4, path, &diag), SONDE_ENOTFOUND);
    assert_string_equal(diag.where, path);

    (void)snprintf(path, sizeof path, "%s/plain", folder);
    assert_int_equal(draw_sample(&s, 4, in_folder("plain.svg"), &diag), SONDE_OK);
    (void)snprintf(path, sizeof path, "%s/plain.svg/a.png",
                   folder); /* a file as folder */
    assert_int_equal(draw_sample(&s, 4, path, &diag), SONDE_EIO);
    assert_string_equal(diag.where, path);

    (void)snprintf(path, sizeof path, "%s/folder.png", folder); /* a folder as file */
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(draw_sample(&s, 4, path, &diag), SONDE_EIO);
    assert_string_equal(diag.where, path);
    assert_int_equal(rmdir(path), 0);

    (void)snprintf(path, sizeof path, "%s/", folder);
    memset(path + strlen(path), 'n', 251); /* as long as a name can be */
    (void)snprintf(path + strlen(folder) + 252, 8, ".png");
    assert_int_equal(draw_sample(&s, 4, path, &diag), SONDE_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(in_folder("plain.svg")), 0);
    /* Nothing but what other tests left: no temporary file of the failures. */
    (void)unlink(in_folder("p.png"));
    (void)unlink(in_folder("p.svg"));
    assert_int_equal(count_files(), 0);
}

/* What was there stays when a picture cannot be drawn, and is replaced when it can. */
static void test_replacing(void **state)
{
    const sonde_plot_page page = {0};
    samples s;
    sonde_diag diag = {0};
    struct stat info = {0};
    size_t size = 0;
    char *bytes = NULL;
    FILE *file = fopen(in_folder("p.png"), "wb");

    (void)state;
    assert_non_null(file);
    assert_int_equal(fputs("precious", file) >= 0, 1);
    assert_int_equal(fclose(file), 0);
    make_samples(&s, &page);
    s.curves.count = 0;
    assert_int_equal(draw_sample(&s, 4, file_name, &diag), SONDE_EINVAL);
    bytes = slurp(file_name, &size);
    assert_string_equal(bytes, "precious");
    free(bytes);
    s.curves.count = 1;
    assert_int_equal(draw_sample(&s, 4, file_name, &diag), SONDE_OK);
    bytes = slurp(file_name, &size);
    assert_memory_equal(bytes + 1, "PNG", 3);
    free(bytes);
    assert_int_equal(stat(file_name, &info), 0);
    assert_int_equal(info.st_mode & 0600, 0600);
    assert_int_equal(unlink(file_name), 0);
    assert_int_equal(count_files(), 0);
}

static void test_bad_pages(void **state)
{
    const sonde_plot_page pages[] = {{.width = 159},    {.width = -1},
                                     {.width = 16001},  {.height = 119},
                                     {.height = 16001}, {.scale = 0.4},
                                     {.scale = 9},      {.scale = NAN},
                                     {.scale = -1},     {.width = 16000, .scale = 3}};
    samples s;
    sonde_diag diag = {0};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(pages); i++) {
        make_samples(&s, &pages[i]);
        assert_int_equal(draw_sample(&s, 3, in_folder("p.png"), &diag), SONDE_EINVAL);
        assert_int_equal(count_files(), 0);
    }
}

/* --- layout ------------------------------------------------------------------------- */

/* Texts never overlap and never leave the page, on whatever page there is room. */
static void test_pages_of_every_size(void **state)
{
    static const int heights[] = {0, 120, 200, 333, 700};
    size_t fitted = 0, refused = 0;
    samples s;

    (void)state;
    for (int width = 160; width < 1400; width += 83) {
        for (size_t i = 0; i < SONDE_COUNT_OF(heights); i++) {
            const sonde_plot_page page = {
                .title = "A title that is long enough to need two lines on narrow pages",
                .note =
                    "And a note, which also has more to say than fits on one line of a "
                    "narrow page.",
                .width = width,
                .height = heights[i]};

            make_samples(&s, &page);
            for (int picture = 0; picture < PICTURES; picture++) {
                sonde__plot_scene scene = {0};
                const sonde_err err = build_sample(&s, picture, width, &scene);

                if (err == SONDE_OK) {
                    check_texts(&scene);
                    fitted++;
                } else {
                    assert_int_equal(err, SONDE_EINVAL);
                    refused++;
                    /* Room as usual is always enough. */
                    assert_true(width < 600 || (heights[i] > 0 && heights[i] < 300));
                }
                sonde__plot_scene_fini(&scene);
            }
        }
    }
    assert_true(fitted > 200 && refused > 0);
}

/* --- threads: tsan: yes ------------------------------------------------------------- */

typedef struct drawer {
    char path[128];
    sonde_err err;
} drawer;

static void *draw_some(void *user)
{
    const sonde_plot_page page = {.title = "T", .width = 700};
    drawer *const d = user;
    samples s;

    make_samples(&s, &page);
    for (int picture = 0; picture < PICTURES && d->err == SONDE_OK; picture++) {
        d->err = draw_sample(&s, picture, d->path, NULL);
    }
    return NULL;
}

static void test_threads(void **state)
{
    enum { THREADS = 4 };
    drawer drawers[THREADS] = {{{0}, SONDE_OK}};
    pthread_t threads[THREADS];
    int joined = 0;

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        (void)snprintf(drawers[i].path, sizeof drawers[i].path, "%s/%d.%s", folder, i,
                       i % 2 == 0 ? "png" : "svg");
        assert_int_equal(pthread_create(&threads[i], NULL, draw_some, &drawers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) { /* all, before any assertion leaves this frame */
        joined += pthread_join(threads[i], NULL) == 0;
    }
    assert_int_equal(joined, THREADS);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(drawers[i].err, SONDE_OK);
        assert_int_equal(unlink(drawers[i].path), 0);
    }
    assert_int_equal(count_files(), 0);
}

/* --- memory ------------------------------------------------------------------------- */

static void test_allocation_failures(void **state)
{
    const sonde_plot_page page = {.title = "T", .note = "N", .width = 500};
    samples s;

    (void)state;
    make_samples(&s, &page);
    s.confusion.counts.shape[0] = s.confusion.counts.shape[1] = 2;
    s.curves.count = 1;
    s.images.images.shape[0] = 2;
    for (int picture = 0; picture < PICTURES; picture++) {
        const char *const path = in_folder(picture % 2 == 0 ? "p.png" : "p.svg");
        sonde_err err = SONDE_ENOMEM;

        for (size_t n = 0; err != SONDE_OK; n += n < 100 ? 1 : 7) {
            alloc_failure_begin(n);
            err = draw_sample(&s, picture, path, NULL);
            assert_int_equal(alloc_failure_end(), 0);
            if (err != SONDE_OK) {
                assert_int_equal(err, SONDE_ENOMEM);
                assert_int_equal(count_files(), 0);
            }
        }
        assert_int_equal(unlink(path), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_endings),
        cmocka_unit_test(test_png_of_each),
        cmocka_unit_test(test_svg_of_each),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_replacing),
        cmocka_unit_test(test_bad_pages),
        cmocka_unit_test(test_pages_of_every_size),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_allocation_failures),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
