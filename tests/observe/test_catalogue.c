/*
 * test_catalogue.c - declaring tensors, and finding them as users spell them.
 */
#include "cmocka_all.h"

#include "observe/tensor_names.h"
#include "observe/network.h"

#include <stdio.h>
#include <string.h>

static void ids_are_dense_and_metadata_is_kept(void **state)
{
    sonde_catalogue *catalogue = net_create();

    (void)state;
    assert_int_equal(sonde_catalogue_count(catalogue), NET_COUNT);
    for (uint32_t id = 0; id < NET_COUNT; id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id);

        assert_string_equal(info->name, net_tensors[id].name);
        assert_string_equal(info->module, net_tensors[id].module);
        assert_string_equal(info->op, net_tensors[id].op);
        assert_string_equal(info->note, net_tensors[id].note ? net_tensors[id].note : "");
        assert_ptr_not_equal(info->name, net_tensors[id].name); /* a copy */
        assert_int_equal(info->role, net_tensors[id].role);
        assert_int_equal(info->pass, net_tensors[id].pass);
        assert_int_equal(info->rank, net_tensors[id].rank);
        assert_int_equal(info->same_as, id == NET_FC_IN ? NET_RELU_OUT : id);
    }
    assert_null(sonde_catalogue_info(catalogue, NET_COUNT));
    assert_null(sonde_catalogue_info(catalogue, SONDE_NO_TENSOR));
    sonde_catalogue_destroy(catalogue);
    sonde_catalogue_destroy(NULL);
}

static void an_alias_of_an_alias_is_one_of_the_tensor(void **state)
{
    sonde_catalogue *catalogue = net_create();
    sonde_tensor_info info = net_tensors[NET_FC_IN];
    uint32_t id = 0;

    (void)state;
    info.name = "again";
    info.same_as = NET_FC_IN;
    assert_int_equal(sonde_catalogue_declare(catalogue, &info, &id, NULL), SONDE_OK);
    assert_int_equal(id, NET_COUNT);
    assert_int_equal(sonde_catalogue_info(catalogue, id)->same_as, NET_RELU_OUT);
    sonde_catalogue_destroy(catalogue);
}

/* Each row spoils one field of a good declaration. */
static void bad_declarations_are_refused(void **state)
{
    sonde_catalogue *catalogue = net_create();
    const sonde_tensor_info good = net_tensors[NET_FC_IN];
    uint32_t id = 77;

    (void)state;
    for (int i = 0; i < 11; i++) {
        static const sonde_err expected[] = {SONDE_EINVAL, SONDE_EINVAL, SONDE_EEXIST,
                                             SONDE_EINVAL, SONDE_EINVAL, SONDE_EDTYPE,
                                             SONDE_ESHAPE, SONDE_ESHAPE, SONDE_ERANGE,
                                             SONDE_EDTYPE, SONDE_ESHAPE};
        sonde_tensor_info bad = good;
        sonde_diag diag = {0};

        bad.name = i == 0 ? NULL : i == 1 ? "" : i == 2 ? "loss" : "new";
        bad.role = i == 3 ? (sonde_role)SONDE_ROLE_COUNT : good.role;
        bad.pass = i == 4 ? (sonde_pass)4 : good.pass;
        bad.dtype = i == 5   ? (sonde_dtype)SONDE_DTYPE_COUNT
                    : i == 9 ? SONDE_F64
                             : good.dtype;
        bad.rank = i == 6 ? 9 : good.rank;
        bad.shape[1] = i == 7 ? -1 : i == 10 ? 5 : good.shape[1];
        bad.same_as = i == 8 ? NET_COUNT : good.same_as;
        assert_int_equal(sonde_catalogue_declare(catalogue, &bad, &id, &diag),
                         expected[i]);
        assert_int_equal(diag.err, expected[i]);
        assert_true(diag.found[0] != '\0' && diag.expected[0] != '\0');
    }
    assert_int_equal(id, 77);
    assert_int_equal(sonde_catalogue_count(catalogue), NET_COUNT);
    sonde_catalogue_destroy(catalogue);
}

static void many_names_are_found(void **state)
{
    sonde_catalogue *catalogue = NULL;
    char name[64];

    (void)state;
    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
    for (uint32_t i = 0; i < 3000; i++) {
        uint32_t id = 0;

        (void)snprintf(name, sizeof name, "layer%u.weight", i);
        const sonde_tensor_info info = {
            .name = name, .module = "m", .same_as = UINT32_MAX};

        assert_int_equal(sonde_catalogue_declare(catalogue, &info, &id, NULL), SONDE_OK);
        assert_int_equal(id, i);
    }
    for (uint32_t i = 0; i < 3000; i += 7) {
        uint32_t id = 0;

        (void)snprintf(name, sizeof name, "layer%u.weight", i);
        assert_int_equal(sonde_catalogue_find(catalogue, name, &id, NULL), SONDE_OK);
        assert_int_equal(id, i);
    }
    sonde_catalogue_destroy(catalogue);
}

static void names_are_found_as_users_write_them(void **state)
{
    static const struct {
        const char *name;
        uint32_t id;
    } cases[] = {
        {"fc1.weight", NET_FC_WEIGHT},
        {"model.fc1.weight", NET_FC_WEIGHT},
        {"Gradient___model.fc1.weight", NET_GRAD_FC_WEIGHT},
        {"UpdatedVar___model.fc1.weight", NET_UPDATED_FC_WEIGHT},
        {"fc1_output", NET_FC_OUT},
        {"model.fc1_output", NET_FC_OUT},
        {"model.layer1.conv_output_0", NET_CONV_OUT},
        {"Gradient___fc1_output", NET_GRAD_FC_OUT},
        {"Gradient___model.fc1_output", NET_GRAD_FC_OUT},
        {"fc1_input", NET_FC_IN},
    };
    sonde_catalogue *catalogue = net_create();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t id = SONDE_NO_TENSOR;

        assert_int_equal(sonde_catalogue_find(catalogue, cases[i].name, &id, NULL),
                         SONDE_OK);
        assert_int_equal(id, cases[i].id);
    }
    sonde_catalogue_destroy(catalogue);
}

static void model_is_kept_where_a_module_has_that_name(void **state)
{
    static const char *const modules[] = {"model", "model.encoder"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        sonde_catalogue *catalogue = net_create();
        const sonde_tensor_info info = {
            .name = "model.own", .module = modules[i], .same_as = UINT32_MAX};
        uint32_t id = 0;

        assert_int_equal(sonde_catalogue_declare(catalogue, &info, &id, NULL), SONDE_OK);
        assert_int_equal(sonde_catalogue_find(catalogue, "model.own", &id, NULL),
                         SONDE_OK);
        assert_int_equal(sonde_catalogue_find(catalogue, "model.fc1.weight", &id, NULL),
                         SONDE_ENOTFOUND);
        sonde_catalogue_destroy(catalogue);
    }
}

static void expect_line(const sonde_catalogue *catalogue, const char *name,
                        const char *line)
{
    sonde_diag diag = {0};
    char text[SONDE_DIAG_LINE];
    uint32_t id = 5;

    assert_int_equal(sonde_catalogue_find(catalogue, name, &id, &diag), SONDE_ENOTFOUND);
    assert_string_equal(sonde_diag_line(&diag, text, sizeof text), line);
    assert_int_equal(id, 5);
}

static void unknown_names_list_the_nearest(void **state)
{
    sonde_catalogue *catalogue = net_create();

    (void)state;
    expect_line(catalogue, "fc1.wieght",
                "unknown tensor 'fc1.wieght' (expected a name such as fc1.weight)");
    expect_line(catalogue, "model.fc1.wieght",
                "unknown tensor 'model.fc1.wieght' (expected a name such as fc1.weight)");
    expect_line(catalogue, "conv",
                "unknown tensor 'conv' (expected a name such as layer1.conv.bias, "
                "layer1.conv.weight or layer1.conv_output_0)");
    expect_line(catalogue, "zzzz",
                "unknown tensor 'zzzz' (expected one of the 15 names declared)");
    expect_line(catalogue, "Gradient___input",
                "unknown tensor 'Gradient___input': 'input' exists but has no gradient "
                "(expected a tensor that leads to the loss)");
    sonde_catalogue_destroy(catalogue);
}

static const char *list_at(const void *list, size_t i)
{
    const char *const *names = list;

    return names[i];
}

static void nearest_names_fit_their_buffer(void **state)
{
    static const char *const names[] = {"abcd", "abce", "abcd", "abcf", "abcg", "xyz"};
    char buf[24];

    (void)state;
    assert_int_equal(
        sonde__observe_nearest_names("abc", names, list_at, 6, buf, sizeof buf), 3);
    assert_string_equal(buf, "abcd, abce or abcf");
    assert_int_equal(sonde__observe_nearest_names("abcg", names, list_at, 6, buf, 16), 2);
    assert_string_equal(buf, "abcg, abcd");
    assert_int_equal(
        sonde__observe_nearest_names("qqqqqq", names, list_at, 6, buf, sizeof buf), 0);
    assert_string_equal(buf, "");
}

static void roles_and_passes_have_names(void **state)
{
    (void)state;
    assert_string_equal(sonde_role_name(SONDE_ROLE_WEIGHT), "weight");
    assert_string_equal(sonde_role_name(SONDE_ROLE_OPTIMIZER), "optimizer");
    assert_string_equal(sonde_role_name(SONDE_ROLE_ACTIVATION_GRADIENT),
                        "activation_gradient");
    assert_string_equal(sonde_role_name(SONDE_ROLE_OTHER), "other");
    assert_string_equal(sonde_role_name(SONDE_ROLE_PROGRAM), "program");
    assert_string_equal(sonde_role_name((sonde_role)14), "?");
    assert_string_equal(sonde_pass_name(SONDE_PASS_NONE), "none");
    assert_string_equal(sonde_pass_name(SONDE_PASS_UPDATE), "update");
    assert_string_equal(sonde_pass_name((sonde_pass)4), "?");
}

static sonde_err build_and_find(void *user)
{
    sonde_catalogue *catalogue = NULL;
    sonde_err err = sonde_catalogue_create(&catalogue, NULL);
    uint32_t id = 0;

    (void)user;
    for (int i = 0; i < NET_COUNT && err == SONDE_OK; i++) {
        err = sonde_catalogue_declare(catalogue, &net_tensors[i], &id, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_catalogue_find(catalogue, "model.fc1_output", &id, NULL);
    }
    sonde_catalogue_destroy(catalogue);
    return err;
}

static void no_allocation_failure_is_lost(void **state)
{
    (void)state;
    assert_true(net_alloc_failures(build_and_find, NULL) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_dense_and_metadata_is_kept),
        cmocka_unit_test(an_alias_of_an_alias_is_one_of_the_tensor),
        cmocka_unit_test(bad_declarations_are_refused),
        cmocka_unit_test(many_names_are_found),
        cmocka_unit_test(names_are_found_as_users_write_them),
        cmocka_unit_test(model_is_kept_where_a_module_has_that_name),
        cmocka_unit_test(unknown_names_list_the_nearest),
        cmocka_unit_test(nearest_names_fit_their_buffer),
        cmocka_unit_test(roles_and_passes_have_names),
        cmocka_unit_test(no_allocation_failure_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
