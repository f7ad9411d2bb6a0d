/* engine.c - the helpers that engine.h declares. */
#include "nn/engine.h"

sonde_diag engine_diag;
const sonde_nn_optimizer engine_sgd = {.kind = SONDE_NN_SGD, .learning_rate = 0.01F};

void engine_expect(sonde_err err, sonde_err want, const char *text, const char *file,
                   int line)
{
    if (err != want) {
        char buf[SONDE_DIAG_LINE];

        print_error("%s: %s, not %s: %s\n", text, sonde_err_name(err),
                    sonde_err_name(want), sonde_diag_line(&engine_diag, buf, sizeof buf));
        _fail(file, line);
    }
}

void engine_expect_line(const char *want, const char *file, int line)
{
    char buf[SONDE_DIAG_LINE];

    _assert_string_equal(sonde_diag_line(&engine_diag, buf, sizeof buf), want, file,
                         line);
}

sonde_nn_value engine_inputs(engine_net *net, sonde_nn_value *target)
{
    int64_t shape[5] = {net->batch};
    sonde_nn_value x = 0;

    memcpy(shape + 1, net->sample, (size_t)net->rank * sizeof *shape);
    must(sonde_nn_model_create(&net->model, &engine_diag));
    x = sonde_nn_input(net->model, SONDE_F32, net->rank + 1, shape);
    *target = sonde_nn_input(net->model, SONDE_I64, 1, shape);
    return x;
}

void engine_finish(engine_net *net, sonde_nn_value output, sonde_nn_value loss)
{
    sonde_nn_output(net->model, output);
    sonde_nn_loss(net->model, loss);
    must(sonde_nn_model_status(net->model, &engine_diag));
    sonde_nn_model_initialize(net->model, 7);
}

void engine_cnn(engine_net *net, int64_t batch)
{
    sonde_nn_value x = 0, target = 0;
    sonde_nn_model *m = NULL;

    *net = (engine_net){.rank = 3, .sample = {1, 12, 12}, .classes = 5, .batch = batch};
    x = engine_inputs(net, &target);
    m = net->model;
    x = sonde_nn_conv2d(
        m, "conv1", x,
        SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 3, .kernel_size = {3}));
    x = sonde_nn_relu(m, "relu", x);
    x = sonde_nn_max_pool2d(m, "pool", x,
                            SONDE_OPTIONS(sonde_nn_pool2d, .kernel_size = {2, 2}));
    x = sonde_nn_conv2d(
        m, "conv2", x,
        SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 4, .kernel_size = {3}));
    x = sonde_nn_relu(m, "relu", x);
    x = sonde_nn_group_norm(m, "norm", x,
                            SONDE_OPTIONS(sonde_nn_group_norm, .num_groups = 2));
    x = sonde_nn_flatten(m, NULL, x, 1);
    x = sonde_nn_linear(m, "fc1", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 17));
    x = sonde_nn_relu(m, "relu", x);
    x = sonde_nn_linear(m, "fc2", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 5));
    x = sonde_nn_log_softmax(m, "log_softmax", x, 1);
    engine_finish(net, x, sonde_nn_nll_loss(m, "loss", x, target));
}

void engine_mlp(engine_net *net, int64_t batch)
{
    sonde_nn_value x = 0, target = 0;
    sonde_nn_model *m = NULL;

    *net = (engine_net){.rank = 1, .sample = {24}, .classes = 4, .batch = batch};
    x = engine_inputs(net, &target);
    m = net->model;
    x = sonde_nn_linear(m, "fc1", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 32));
    x = sonde_nn_relu(m, "relu1", x);
    x = sonde_nn_linear(m, "fc2", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 4));
    engine_finish(net, x, sonde_nn_cross_entropy(m, "loss", x, target, NULL));
}

void engine_branches(engine_net *net, int64_t batch)
{
    static const int nchw_to_nhwc[] = {0, 2, 3, 1};
    sonde_nn_value x = 0, target = 0, a = 0, b = 0, c = 0;
    sonde_nn_model *m = NULL;

    *net = (engine_net){.rank = 3, .sample = {2, 6, 6}, .classes = 3, .batch = batch};
    x = engine_inputs(net, &target);
    m = net->model;
    sonde_nn_scope_push(m, "block");
    a = sonde_nn_conv2d(m, "conv", x,
                        SONDE_OPTIONS(sonde_nn_conv2d, .out_channels = 4,
                                      .kernel_size = {3}, .padding = {1, 1}));
    b = sonde_nn_relu(m, NULL, a);
    c = engine_mul(m, NULL, a, b);
    c = sonde_nn_add(m, "sum", c, b);
    sonde_nn_scope_pop(m);
    a = engine_reduce(m, "mean", NULL, c, (const int[]){2, 3}, 2,
                      true); /* (N, 4, 1, 1) */
    b = sonde_nn_softmax(m, NULL, c, 1);
    c = sonde_nn_add(m, NULL, a, b); /* broadcast */
    c = engine_permute(m, NULL, c, nchw_to_nhwc);
    c = sonde_nn_reshape(m, NULL, c, 2, (const int64_t[]){-1, 4}); /* (36 N, 4) */
    c = sonde_nn_linear(m, "mix", c, SONDE_OPTIONS(sonde_nn_linear, .out_features = 4));
    c = sonde_nn_relu(m, NULL, c);
    c = sonde_nn_linear(m, "mix", c, SONDE_OPTIONS(sonde_nn_linear, .out_features = 4));
    c = sonde_nn_reshape(m, NULL, c, 2, (const int64_t[]){-1, 144});
    c = sonde_nn_linear(
        m, "head", c, SONDE_OPTIONS(sonde_nn_linear, .out_features = 3, .no_bias = true));
    engine_finish(net, c, sonde_nn_cross_entropy(m, "loss", c, target, NULL));
}

void engine_net_fini(engine_net *net)
{
    sonde_nn_model_destroy(net->model);
    net->model = NULL;
}

void engine_batch_init(engine_batch *batch, const engine_net *net, int64_t count,
                       uint64_t seed)
{
    int64_t shape[5] = {count}, numbers = count;

    for (int i = 0; i < net->rank; i++) {
        shape[i + 1] = net->sample[i];
        numbers *= net->sample[i];
    }
    batch->samples = malloc((size_t)numbers * sizeof *batch->samples);
    batch->targets = malloc((size_t)count * sizeof *batch->targets);
    assert_non_null(batch->samples);
    assert_non_null(batch->targets);
    for (int64_t i = 0; i < numbers; i++) {
        batch->samples[i] = 2.0F * sonde__uniform(seed, 1, (uint64_t)i) - 1.0F;
    }
    for (int64_t i = 0; i < count; i++) {
        batch->targets[i] =
            (int64_t)sonde__below(seed, 2, (uint64_t)i, (uint64_t)net->classes);
    }
    batch->views[0] = sonde_view_of(SONDE_F32, net->rank + 1, shape, batch->samples);
    batch->views[1] = sonde_view_of(SONDE_I64, 1, shape, batch->targets);
}

void engine_batch_fini(engine_batch *batch)
{
    free(batch->samples);
    free(batch->targets);
}

void engine_train(const engine_net *net, sonde_nn_session *session, uint64_t seed)
{
    sonde_nn_session_info info;
    engine_batch batch;

    must(sonde_nn_session_compile(session, &engine_diag));
    must(sonde_nn_session_describe(session, &info, &engine_diag));
    engine_batch_init(&batch, net, info.combined_batch, seed);
    must(sonde_nn_session_run(session, batch.views, 2, &engine_diag));
    engine_batch_fini(&batch);
}

size_t engine_weight_count(const sonde_nn_model *model)
{
    size_t count = 0;

    for (size_t i = 0; i < sonde_nn_model_get_info(model).parameter_count; i++) {
        const sonde_view view = sonde_nn_parameter(model, i).view;

        count += (size_t)sonde_view_count(&view);
    }
    return count;
}

float *engine_weights(const sonde_nn_model *model)
{
    float *all = malloc(engine_weight_count(model) * sizeof *all), *to = all;

    assert_non_null(all);
    for (size_t i = 0; i < sonde_nn_model_get_info(model).parameter_count; i++) {
        const sonde_view view = sonde_nn_parameter(model, i).view;
        const size_t count = (size_t)sonde_view_count(&view);

        memcpy(to, view.data, count * sizeof *to);
        to += count;
    }
    return all;
}

void engine_set_weights(const sonde_nn_model *model, const float *from)
{
    for (size_t i = 0; i < sonde_nn_model_get_info(model).parameter_count; i++) {
        const sonde_view view = sonde_nn_parameter(model, i).view;
        const size_t count = (size_t)sonde_view_count(&view);

        memcpy(view.data, from, count * sizeof *from);
        from += count;
    }
}

float *engine_parameter(const sonde_nn_model *model, const char *name, size_t *count)
{
    for (size_t i = 0; i < sonde_nn_model_get_info(model).parameter_count; i++) {
        if (strcmp(sonde_nn_parameter(model, i).name, name) == 0) {
            const sonde_view view = sonde_nn_parameter(model, i).view;

            if (count != NULL) {
                *count = (size_t)sonde_view_count(&view);
            }
            return view.data;
        }
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

void engine_put(sonde_sink *sink, const sonde_observation *observation)
{
    engine_sink *self = (engine_sink *)sink;
    const sonde_view *view = observation->view;
    engine_seen *seen = NULL;

    if (self->count == self->capacity) {
        self->capacity = self->capacity > 0 ? 2 * self->capacity : 256;
        self->seen = realloc(self->seen, self->capacity * sizeof *self->seen);
        assert_non_null(self->seen);
    }
    seen = &self->seen[self->count++];
    *seen = (engine_seen){.at = observation->at,
                          .info = *observation->info,
                          .count = sonde_view_count(view),
                          .has_vitals = observation->vitals != NULL};
    (void)snprintf(seen->name, sizeof seen->name, "%s", observation->info->name);
    if (observation->vitals != NULL) {
        seen->vitals = *observation->vitals;
    }
    if (self->raw) {
        const size_t bytes = (size_t)seen->count * sonde_dtype_size(view->dtype);
        sonde_view copy;

        assert_non_null(view->data);
        seen->data = malloc(bytes > 0 ? bytes : 1);
        assert_non_null(seen->data);
        copy = sonde_view_of(view->dtype, view->rank, view->shape, seen->data);
        assert_int_equal(sonde_view_copy(&copy, view, NULL), SONDE_OK);
    }
}

void engine_sink_init(engine_sink *self, bool raw)
{
    *self = (engine_sink){.sink = {.put = engine_put}, .raw = raw};
}

void engine_sink_clear(engine_sink *self)
{
    for (size_t i = 0; i < self->count; i++) {
        free(self->seen[i].data);
    }
    self->count = 0;
}

void engine_sink_fini(engine_sink *self)
{
    engine_sink_clear(self);
    free(self->seen);
    self->seen = NULL;
    self->capacity = 0;
}

const engine_seen *engine_find(const engine_sink *self, const char *name, int64_t step,
                               int micro_batch)
{
    static const engine_seen nothing;

    for (size_t i = 0; i < self->count; i++) {
        const engine_seen *seen = &self->seen[i];

        if (strcmp(seen->name, name) == 0 && seen->at.mode_step == step &&
            seen->at.micro_batch == micro_batch) {
            return seen;
        }
    }
    fail_msg("%s was not seen at step %d, micro-batch %d", name, (int)step, micro_batch);
    return &nothing;
}

sonde_vitals engine_spread_vitals(const sonde_tensor_info *info, const float *x)
{
    const int64_t planes = info->shape[0] * info->shape[1];
    const int64_t h = info->shape[2], w = info->shape[3], windows = (h / 2) * (w / 2);
    float *dy = malloc((size_t)(planes * h * w) * sizeof *dy);
    sonde_vitals vitals;

    assert_non_null(dy);
    for (int64_t i = 0; i < planes * windows; i++) {
        const int64_t row = i / (w / 2), plane = row / (h / 2);
        const float *window = x + (plane * h + row % (h / 2) * 2) * w + i % (w / 2) * 2;

        dy[i] = window[0] != 0.0F ? window[0] : window[1];
        dy[i] = dy[i] != 0.0F ? dy[i] : window[w];
        dy[i] = dy[i] != 0.0F ? dy[i] : window[w + 1];
    }
    vitals = vitals_in_lanes(SONDE_F32, info->shape[0], info->shape[1] * windows, dy);
    free(dy);
    return vitals_and_zeros(vitals, planes * h * w);
}

bool engine_vitals_agree(const sonde_tensor_info *info, void *data,
                         const sonde_vitals *vitals)
{
    const sonde_view view = sonde_view_of(info->dtype, info->rank, info->shape, data);
    const bool of_parameter = info->pass == SONDE_PASS_UPDATE ||
                              info->role == SONDE_ROLE_WEIGHT ||
                              info->role == SONDE_ROLE_GRADIENT;
    sonde_vitals want;

    sonde_vitals_of(&view, &want);
    if (memcmp(&want, vitals, sizeof want) == 0 || of_parameter) {
        return memcmp(&want, vitals, sizeof want) == 0;
    }
    if (info->pass == SONDE_PASS_FORWARD) {
        return vitals_near(&want, vitals);
    }
    want = vitals_in_lanes(info->dtype, info->rank == 0 ? 1 : info->shape[0],
                           info->rank == 0 ? 1 : sonde_view_count(&view) / info->shape[0],
                           data);
    if (memcmp(&want, vitals, sizeof want) == 0) {
        return true;
    }
    if (info->role != SONDE_ROLE_ACTIVATION_GRADIENT || info->rank != 4) {
        return false;
    }
    want = engine_spread_vitals(info, data);
    return memcmp(&want, vitals, sizeof want) == 0;
}

void engine_tap_all(sonde_nn_session *session, unsigned how, engine_sink *sink)
{
    const sonde_schedule always = sonde_schedule_every(1);

    must(sonde_nn_session_tap(session, "@all", &always, how, &sink->sink, &engine_diag));
}

sonde_nn_value engine_apply(sonde_nn_model *m, const char *kind, const char *name,
                            sonde_nn_value x)
{
    return sonde_nn_layer(m, kind, name, &x, 1, NULL, 0);
}

sonde_nn_value engine_mul(sonde_nn_model *m, const char *name, sonde_nn_value a,
                          sonde_nn_value b)
{
    return sonde_nn_layer(m, "mul", name, (sonde_nn_value[]){a, b}, 2, NULL, 0);
}

static sonde_nn_setting dimensions(const char *key, const int *dims, int count)
{
    sonde_nn_setting setting = {.key = key, .count = count};

    for (int i = 0; i < count; i++) {
        setting.values[i] = dims[i];
    }
    return setting;
}

sonde_nn_value engine_reduce(sonde_nn_model *m, const char *kind, const char *name,
                             sonde_nn_value x, const int *dims, int count, bool keep)
{
    const sonde_nn_setting settings[] = {{.key = "keepdim", .values = {keep ? 1.0 : 0.0}},
                                         dimensions("dim", dims, count)};

    return sonde_nn_layer(m, kind, name, &x, 1, settings, count > 0 ? 2 : 1);
}

sonde_nn_value engine_permute(sonde_nn_model *m, const char *name, sonde_nn_value x,
                              const int *dims)
{
    int rank = 0;
    const int64_t *shape = sonde_nn_value_shape(m, x, &rank);
    const sonde_nn_setting setting = dimensions("dims", dims, shape != NULL ? rank : 0);

    return sonde_nn_layer(m, "permute", name, &x, 1, &setting, 1);
}

size_t engine_output_count(const sonde_nn_session *session)
{
    sonde_nn_session_info info;

    must(sonde_nn_session_describe(session, &info, &engine_diag));
    return info.output_count;
}
