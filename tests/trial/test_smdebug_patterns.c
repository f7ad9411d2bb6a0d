/*
 * test_smdebug_patterns.c - the patterns of smdebug's default collections, for PyTorch,
 * MXNet, Keras, TensorFlow and XGBoost, against names: a tensor belongs to a collection
 * where Python's re.search, which smdebug uses, finds the pattern in its name. Case
 * counts.
 */
#include "trial/run_folder.h"

#include "base/macros.h"

#include <sonde/json.h>
#include <sonde/text.h>

#include <string.h>

/* As smdebug 1.0.34 sets them. */
static const struct {
    const char *collection, *pattern;
} patterns[] = {
    {"pytorch.weights", "^(?!gradient).*weight"},
    {"pytorch.biases", "^(?!gradient).*bias"},
    {"pytorch.gradients", "^gradient"},
    {"pytorch.losses", "[Ll]oss_(?!input).*output"},
    {"mxnet.losses", ".*loss._(?!input).*output"},
    {"keras.weights", "^weights/.*/((?!bias).)*$"},
    {"keras.losses", ".*loss.*"},
    {"tf.biases", "bias"},
    {"xgboost.hyperparameters", "^hyperparameters/.*$"},
    {"xgboost.metrics", "^[a-zA-z]+-[a-zA-z0-9]+$"},
    {"xgboost.losses", "^[a-zA-z]+-.+(?<!(auc|map))$"},
    {"xgboost.predictions", "^predictions$"},
    {"xgboost.labels", "^labels$"},
    {"xgboost.feature_importance", "^feature_importance/.*"},
    {"xgboost.average_shap", "^average_shap/.*[^/bias]$"},
    {"xgboost.full_shap", "^full_shap/.*[^/bias]$"},
    {"xgboost.trees", "^trees/.*"},
    {"module.inputs", "fc1_input_"},
    {"everything", ".*"},
};

/* A digit for each of these patterns: what re.search of Python 3.11 found. */
static const struct {
    const char *name, *found;
} names[] = {
    {"Net_fc1.weight", "1000000000000000001"},
    {"Net_fc1.bias", "0100000100000000001"},
    {"gradient/Net_fc1.weight", "0010000000000000001"},
    {"gradient/Net_fc1.bias", "0010000100000000001"},
    {"Gradient/Net_fc1.weight", "1000000000000000001"},
    {"Net_fc1.Weight", "0000000000000000001"},
    {"CrossEntropyLoss_output_0", "0001000000000000001"},
    {"CrossEntropyLoss_input_0", "0000000000000000001"},
    {"loss_fn_output_0", "0001001000000000001"},
    {"nll_loss_output_0", "0001001000000000001"},
    {"NLLLoss_input_output_0", "0000000000000000001"},
    {"LOSS_output_0", "0000000000000000001"},
    {"Loss:0", "0000000000000000001"},
    {"loss:0", "0000001000000000001"},
    {"softmaxcrossentropyloss0_output_0", "0000101000000000001"},
    {"softmaxcrossentropyloss0_input_0", "0000001000000000001"},
    {"weights/dense/kernel:0", "1000010000000000001"},
    {"weights/dense/bias:0", "1100000100000000001"},
    {"dense/bias:0", "0100000100000000001"},
    {"train-rmse", "0000000001100000001"},
    {"validation-auc", "0000000001000000001"},
    {"validation-map", "0000000001000000001"},
    {"train-logloss", "0000001001100000001"},
    {"train-error@0.7", "0000000000100000001"},
    {"my_set-mae", "0000000001100000001"},
    {"predictions", "0000000000010000001"},
    {"Predictions", "0000000000000000001"},
    {"predictions/0", "0000000000000000001"},
    {"labels", "0000000000001000001"},
    {"label", "0000000000000000001"},
    {"feature_importance/weight/f0", "1000000000000100001"},
    {"average_shap/f0", "0000000000000010001"},
    {"average_shap/f_bias", "0100000100000000001"},
    {"average_shap/bias", "0100000100000000001"},
    {"average_shap/feature_b", "0000000000000000001"},
    {"full_shap/f2", "0000000000000001001"},
    {"full_shap/bias", "0100000100000000001"},
    {"trees/1/0", "0000000000000000101"},
    {"hyperparameters/eta", "0000000010000000001"},
    {"fc1_input_0", "0000000000000000011"},
    {"encoder.fc1_input_1", "0000000000000000011"},
    {"fc1_output_0", "0000000000000000001"},
    {"accuracy", "0000000000000000001"},
};

static FILE *create(const char *name)
{
    char path[WRITER_PATH];

    (void)snprintf(path, sizeof path, "%s/%s", test_run, name);
    for (char *slash = path + strlen(test_run); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0777);
        *slash = '/';
    }
    return writer_file(path, "w");
}

static void save(const char *name, sonde_text *text)
{
    FILE *file = create(name);

    assert_false(text->failed);
    assert_int_equal(fwrite(text->data, 1, text->length, file), text->length);
    assert_int_equal(fclose(file), 0);
    sonde_text_fini(text);
}

/* An index with all names; the event file is missing, which is damage of its own. */
static void write_run(void)
{
    sonde_text index = {0}, collections = {0};
    sonde_json json = {.text = &index};

    sonde_json_object(&json, NULL);
    sonde_json_list(&json, "tensor_payload");
    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        sonde_json_object(&json, NULL);
        sonde_json_string(&json, "tensorname", names[i].name);
        sonde_json_int(&json, "start_idx", 0);
        sonde_json_int(&json, "length", 100);
        sonde_json_end(&json);
    }
    sonde_json_end(&json);
    sonde_json_end(&json);
    save("index/000000000/000000000000_worker_0.json", &index);
    json = (sonde_json){.text = &collections};
    sonde_json_object(&json, NULL);
    sonde_json_object(&json, "collections");
    for (size_t i = 0; i < SONDE_COUNT_OF(patterns); i++) {
        sonde_json_object(&json, patterns[i].collection);
        sonde_json_list(&json, "include_regex");
        sonde_json_string(&json, NULL, patterns[i].pattern);
        sonde_json_end(&json);
        sonde_json_end(&json);
    }
    sonde_json_end(&json);
    sonde_json_end(&json);
    save("collections/000000000/worker_0_collections.json", &collections);
}

static void collections_have_the_tensors_that_smdebug_gives_them(void **state)
{
    sonde_trial *trial = NULL;

    (void)state;
    write_run();
    trial = trial_opened(test_run);
    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        const uint32_t id = trial_id(trial, names[i].name);

        assert_int_equal(strlen(names[i].found), SONDE_COUNT_OF(patterns));
        for (size_t k = 0; k < SONDE_COUNT_OF(patterns); k++) {
            const bool in = sonde_trial_in_collection(trial, id, patterns[k].collection);

            if (in != (names[i].found[k] == '1')) {
                fail_msg("'%s' and '%s' of %s", names[i].name, patterns[k].pattern,
                         patterns[k].collection);
            }
        }
    }
    sonde_trial_close(trial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            collections_have_the_tensors_that_smdebug_gives_them, folder_make,
            folder_remove),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
