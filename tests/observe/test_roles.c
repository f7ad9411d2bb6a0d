/*
 * test_roles.c - the roles that names have in the conventions of PyTorch, Keras, JAX,
 * smdebug, GGUF and plain C programs, and which loss is the objective.
 */
#include "cmocka_all.h"

#include "base/macros.h"
#include "observe/tensor_roles.h"

#include <sonde/tensor.h>

#include <string.h>

typedef struct expectation {
    const char *name;
    sonde_role role;
    sonde_dtype dtype; /* SONDE_BOOL, which is 0, stands for float32 */
} expectation;

static const expectation expected[] = {
    /* Sonde */
    {"conv1.weight", SONDE_ROLE_WEIGHT, 0},
    {"Gradient___conv1.weight", SONDE_ROLE_GRADIENT, 0},
    {"Gradient___relu1_output_0", SONDE_ROLE_ACTIVATION_GRADIENT, 0},
    {"Accum___conv1.weight", SONDE_ROLE_GRADIENT, 0},
    {"UpdatedVar___conv1.weight", SONDE_ROLE_UPDATE, 0},
    {"update/conv1.weight", SONDE_ROLE_UPDATE, 0},
    {"Accl1___conv1.weight", SONDE_ROLE_OPTIMIZER, 0},
    {"input", SONDE_ROLE_INPUT, 0},
    {"input/1", SONDE_ROLE_INPUT, SONDE_I64},
    {"scalar/eval_loss", SONDE_ROLE_SCALAR, 0},
    {"loss", SONDE_ROLE_LOSS, 0},
    /* PyTorch */
    {"loss_fn.weight", SONDE_ROLE_WEIGHT, 0},
    {"encoder.rnn.weight_ih_l0", SONDE_ROLE_WEIGHT, 0},
    {"encoder.rnn.bias_hh_l1", SONDE_ROLE_BIAS, 0},
    {"attn.in_proj_weight", SONDE_ROLE_WEIGHT, 0},
    {"attn.in_proj_bias", SONDE_ROLE_BIAS, 0},
    {"h.0.attn.bias", SONDE_ROLE_BUFFER, SONDE_BOOL},
    {"embeddings.position_ids", SONDE_ROLE_BUFFER, SONDE_I64},
    {"bn1.running_var", SONDE_ROLE_BUFFER, 0},
    {"bn1.num_batches_tracked", SONDE_ROLE_BUFFER, SONDE_I64},
    {"fc1.weight.grad", SONDE_ROLE_GRADIENT, 0},
    {"fc1.weight.exp_avg_sq", SONDE_ROLE_OPTIMIZER, 0},
    {"fc1.weight.momentum_buffer", SONDE_ROLE_OPTIMIZER, 0},
    {"input_ids", SONDE_ROLE_INPUT, SONDE_I64},
    {"grad_norm", SONDE_ROLE_SCALAR, 0},
    /* smdebug on PyTorch */
    {"Net_fc1.weight", SONDE_ROLE_WEIGHT, 0},
    {"gradient/Net_fc1.weight", SONDE_ROLE_GRADIENT, 0},
    {"relu1_input_0", SONDE_ROLE_ACTIVATION, 0},
    {"relu1_output_0", SONDE_ROLE_OUTPUT, 0},
    {"bias_output_0", SONDE_ROLE_OUTPUT, 0},
    {"items.weight_output_0", SONDE_ROLE_OUTPUT, 0},
    {"net.1_output_0", SONDE_ROLE_OUTPUT, 0},
    {"loss_input_0", SONDE_ROLE_ACTIVATION, 0},
    {"CrossEntropyLoss_input_0", SONDE_ROLE_ACTIVATION, 0},
    {"CrossEntropyLoss_input_1", SONDE_ROLE_INPUT, SONDE_I64},
    {"CrossEntropyLoss_output_0", SONDE_ROLE_LOSS, 0},
    {"nll_loss_output_0", SONDE_ROLE_LOSS, 0},
    {"scalar/lr", SONDE_ROLE_SCALAR, 0},
    /* TensorFlow, Keras, JAX; smdebug on them and on XGBoost */
    {"dense/kernel:0", SONDE_ROLE_WEIGHT, 0},
    {"lstm/recurrent_kernel:0", SONDE_ROLE_WEIGHT, 0},
    {"dense/bias:0", SONDE_ROLE_BIAS, 0},
    {"batch_normalization/gamma:0", SONDE_ROLE_WEIGHT, 0},
    {"batch_normalization/beta:0", SONDE_ROLE_BIAS, 0},
    {"batch_normalization/moving_mean:0", SONDE_ROLE_BUFFER, 0},
    {"embedding/embeddings:0", SONDE_ROLE_WEIGHT, 0},
    {"Adam/dense/kernel/m:0", SONDE_ROLE_OPTIMIZER, 0},
    {"gradients/dense/kernel:0Grad", SONDE_ROLE_GRADIENT, 0},
    {"input_1:0", SONDE_ROLE_INPUT, 0},
    {"dense/inputs", SONDE_ROLE_ACTIVATION, 0},
    {"dense/outputs", SONDE_ROLE_OUTPUT, 0},
    {"loss/mul:0", SONDE_ROLE_LOSS, 0},
    {"params/Dense_0/kernel", SONDE_ROLE_WEIGHT, 0},
    {"params/LayerNorm_0/scale", SONDE_ROLE_WEIGHT, 0},
    {"feature_importance/weight/f0", SONDE_ROLE_OTHER, 0},
    {"train-rmse", SONDE_ROLE_OTHER, 0}, /* a loss by its collection */
    {"labels", SONDE_ROLE_INPUT, 0},
    {"predictions", SONDE_ROLE_OUTPUT, 0},
    /* GGUF */
    {"token_embd.weight", SONDE_ROLE_WEIGHT, 0},
    {"output.weight", SONDE_ROLE_WEIGHT, 0},
    {"blk.3.attn_q.bias", SONDE_ROLE_BIAS, 0},
    {"rope_freqs.weight", SONDE_ROLE_BUFFER, 0},
    {"Qcur-0", SONDE_ROLE_ACTIVATION, 0},
    {"inp_tokens", SONDE_ROLE_INPUT, SONDE_I32},
    {"result_output", SONDE_ROLE_OUTPUT, 0},
    /* programs of one's own */
    {"w1", SONDE_ROLE_WEIGHT, 0},
    {"fc2.b", SONDE_ROLE_BIAS, 0},
    {"grad_w1", SONDE_ROLE_GRADIENT, 0},
    {"hidden", SONDE_ROLE_ACTIVATION, 0},
    {"relu1", SONDE_ROLE_ACTIVATION, 0},
    {"logits", SONDE_ROLE_OUTPUT, 0},
    {"learning_rate", SONDE_ROLE_SCALAR, 0},
    {"counter", SONDE_ROLE_OTHER, 0},
    {"", SONDE_ROLE_OTHER, 0},
};

static void names_have_the_roles_of_their_convention(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(expected); i++) {
        const expectation *one = &expected[i];
        const bool mask = strcmp(one->name, "h.0.attn.bias") == 0;
        const sonde_role role = sonde__observe_role_by_name(
            one->name, one->dtype != SONDE_BOOL || mask ? one->dtype : SONDE_F32);

        if (role != one->role) {
            fail_msg("%s: %s, expected %s", one->name, sonde_role_name(role),
                     sonde_role_name(one->role));
        }
    }
}

static void long_names_are_read_to_their_bound(void **state)
{
    char name[2000];

    (void)state;
    memset(name, 'a', sizeof name);
    memcpy(name, "gradient/", 9);
    name[sizeof name - 1] = '\0';
    assert_int_equal(sonde__observe_role_by_name(name, SONDE_F32), SONDE_ROLE_GRADIENT);
}

static void modules_of_activations_name_their_op(void **state)
{
    static const char *const names[][2] = {
        {"relu1_output_0", "relu"}, {"tanh_output_0", "tanh"},
        {"relu1_input_0", ""},      {"net.1_output_0", ""},
        {"fc1.weight", ""},         {"leaky_relu_output_0", ""},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        sonde_tensor_info info = {
            .name = names[i][0], .role = SONDE_ROLE_OTHER, .dtype = SONDE_F32};

        sonde__observe_guess(&info);
        assert_string_equal(info.op, names[i][1]);
    }
}

static void a_declared_role_stays(void **state)
{
    sonde_tensor_info info = {
        .name = "fc1.weight", .role = SONDE_ROLE_BUFFER, .op = "Custom"};

    (void)state;
    sonde__observe_guess(&info);
    assert_int_equal(info.role, SONDE_ROLE_BUFFER);
    assert_string_equal(info.op, "Custom");
}

static void collections_fill_gaps_and_losses_win(void **state)
{
    (void)state;
    assert_int_equal(sonde__observe_role_joined(SONDE_ROLE_OTHER, "losses"),
                     SONDE_ROLE_LOSS);
    assert_int_equal(sonde__observe_role_joined(SONDE_ROLE_OUTPUT, "losses"),
                     SONDE_ROLE_LOSS);
    assert_int_equal(sonde__observe_role_joined(SONDE_ROLE_OTHER, "weights"),
                     SONDE_ROLE_WEIGHT);
    assert_int_equal(sonde__observe_role_joined(SONDE_ROLE_GRADIENT, "weights"),
                     SONDE_ROLE_GRADIENT);
    assert_int_equal(sonde__observe_role_joined(SONDE_ROLE_OTHER, "custom"),
                     SONDE_ROLE_OTHER);
}

/* Declares losses of these names; a mark says which are objectives. */
static void check_objectives(const char *const *names, const bool *objective,
                             size_t count)
{
    sonde_catalogue *catalogue = NULL;

    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
    for (size_t i = 0; i < count; i++) {
        const sonde_tensor_info info = {.name = names[i],
                                        .role = SONDE_ROLE_LOSS,
                                        .dtype = SONDE_F32,
                                        .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        assert_int_equal(sonde_catalogue_declare(catalogue, &info, &id, NULL), SONDE_OK);
    }
    for (size_t i = 0; i < count; i++) {
        if (sonde__observe_is_objective(catalogue, (uint32_t)i) != objective[i]) {
            fail_msg("%s of %zu losses", names[i], count);
        }
    }
    sonde_catalogue_destroy(catalogue);
}

static void parts_and_adversaries_are_not_the_objective(void **state)
{
    (void)state;
    check_objectives((const char *const[]){"loss", "kl_loss", "recon_loss"},
                     (const bool[]){true, false, false}, 3);
    check_objectives((const char *const[]){"loss_a", "loss_b", "total_loss"},
                     (const bool[]){false, false, true}, 3);
    check_objectives((const char *const[]){"d_loss", "g_loss"},
                     (const bool[]){false, false}, 2);
    check_objectives((const char *const[]){"kl_loss"}, (const bool[]){true}, 1);
    check_objectives((const char *const[]){"CrossEntropyLoss_output_0"},
                     (const bool[]){true}, 1);
    check_objectives((const char *const[]){"MSELoss_output_0", "NLLLoss_output_0"},
                     (const bool[]){false, false}, 2);
    check_objectives((const char *const[]){"CrossEntropyLoss_output_0", "val_loss"},
                     (const bool[]){true, true}, 2);
    check_objectives((const char *const[]){"policy_loss", "value_loss"},
                     (const bool[]){false, false}, 2);
    check_objectives((const char *const[]){"nll", "valid/nll", "testLoss", "eval"},
                     (const bool[]){true, true, true, true}, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_the_roles_of_their_convention),
        cmocka_unit_test(long_names_are_read_to_their_bound),
        cmocka_unit_test(modules_of_activations_name_their_op),
        cmocka_unit_test(a_declared_role_stays),
        cmocka_unit_test(collections_fill_gaps_and_losses_win),
        cmocka_unit_test(parts_and_adversaries_are_not_the_objective),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
