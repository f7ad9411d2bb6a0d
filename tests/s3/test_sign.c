/*
 * test_sign.c - signatures against the vectors that AWS publishes: its test suite of
 * Signature Version 4, and the examples of the S3 documentation.
 */
#include "cmocka_all.h"

#include "base/macros.h"
#include "store/s3/sign.h"
#include "store/s3/http.h"

#include <string.h>

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* Of the test suite: service "service", without a header for the payload. */
static sonde__s3_signing suite(void)
{
    return (sonde__s3_signing){.method = "GET",
                               .path = "/",
                               .headers = {{"host", "example.amazonaws.com"},
                                           {"x-amz-date", "20150830T123600Z"}},
                               .header_count = 2,
                               .payload = EMPTY,
                               .date = "20150830T123600Z",
                               .region = "us-east-1",
                               .service = "service",
                               .key = "AKIDEXAMPLE",
                               .secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
}

/* Of the documentation of S3. */
static sonde__s3_signing documentation(void)
{
    return (sonde__s3_signing){.method = "GET",
                               .path = "/",
                               .headers = {{"host", "examplebucket.s3.amazonaws.com"},
                                           {"x-amz-date", "20130524T000000Z"},
                                           {"x-amz-content-sha256", EMPTY}},
                               .header_count = 3,
                               .payload = EMPTY,
                               .date = "20130524T000000Z",
                               .region = "us-east-1",
                               .service = "s3",
                               .key = "AKIAIOSFODNN7EXAMPLE",
                               .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
}

static void signs(sonde__s3_signing request, const char *signature)
{
    sonde_text out = {0};
    const char *found = NULL;

    sonde__s3_sign(&out, &request);
    assert_false(out.failed);
    found = strstr(out.data, "Signature=");
    assert_non_null(found);
    assert_string_equal(found + strlen("Signature="), signature);
    sonde_text_fini(&out);
}

static void vectors_of_the_suite(void **state)
{
    sonde__s3_signing request = suite();

    (void)state;
    signs(request, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
    request.method = "POST";
    signs(request, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
    request = suite(); /* get-vanilla-query-order-key-case */
    request.query[0] = (sonde__s3_pair){"Param2", "value2"};
    request.query[1] = (sonde__s3_pair){"Param1", "value1"};
    request.query_count = 2;
    signs(request, "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
}

static void examples_of_the_documentation(void **state)
{
    sonde__s3_signing request = documentation();

    (void)state;
    request.path = "/test.txt"; /* GET Object, with a range that is signed */
    request.headers[request.header_count++] = (sonde__s3_pair){"range", "bytes=0-9"};
    signs(request, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");

    request = documentation(); /* PUT Object */
    request.method = "PUT";
    request.path = "/test%24file.text";
    request.payload = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    request.headers[2].value = request.payload;
    request.headers[3] = (sonde__s3_pair){"date", "Fri, 24 May 2013 00:00:00 GMT"};
    request.headers[4] = (sonde__s3_pair){"x-amz-storage-class", "REDUCED_REDUNDANCY"};
    request.header_count = 5;
    signs(request, "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");

    request = documentation(); /* GET Bucket Lifecycle */
    request.query[0] = (sonde__s3_pair){"lifecycle", ""};
    request.query_count = 1;
    signs(request, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");

    request = documentation(); /* GET Bucket (List Objects) */
    request.query[0] = (sonde__s3_pair){"prefix", "J"};
    request.query[1] = (sonde__s3_pair){"max-keys", "2"};
    request.query_count = 2;
    signs(request, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

static void paths_are_encoded(void **state)
{
    sonde_text out = {0};

    (void)state;
    sonde__s3_encode(&out, "a b/~c+\xc3\xa9=", true);
    assert_string_equal(out.data, "a%20b/~c%2B%C3%A9%3D");
    out.length = 0;
    sonde__s3_encode(&out, "a/b", false);
    assert_string_equal(out.data, "a%2Fb");
    sonde_text_fini(&out);
}

static void xml_is_decoded(void **state)
{
    const char *at = "<A><Key>x &amp; y&lt;&quot;</Key><Key>z</Key></A>";
    char value[32], small[4];
    const char *again = at;

    (void)state;
    assert_true(sonde__s3_xml(&at, "Key", value, sizeof value));
    assert_string_equal(value, "x & y<\"");
    assert_true(sonde__s3_xml(&at, "Key", value, sizeof value));
    assert_string_equal(value, "z");
    assert_false(sonde__s3_xml(&at, "Key", value, sizeof value));
    assert_true(sonde__s3_xml(&again, "Key", small, sizeof small));
    assert_string_equal(small, "x &");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_the_suite),
        cmocka_unit_test(examples_of_the_documentation),
        cmocka_unit_test(paths_are_encoded),
        cmocka_unit_test(xml_is_decoded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
