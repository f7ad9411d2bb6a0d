/*
 * Webhooks that refuse, fail, are slow, redirect or never answer, from a small server on
 * 127.0.0.1. tsan: yes
 */
#include "rules/acting.h"
#include "base/macros.h"
#include "rules/actions/actions_state.h"

#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

/* One request a connection. Paths say how to answer:
 *     /good 200    /down 500    /flaky 503 twice, then 204    /moved 307 to /good
 *     /missing 404    /late 408    /often 429    /slow 200 after 0.2 s    /silent nothing    /stop ends the server */
static struct {
    int socket, port;
    pthread_t thread;
    atomic_int requests, flaky;
    char body[8192]; /* of the last request; read once its webhook is done */
    char head[2048];
} server;

static void answer(int to, const char *status, const char *more)
{
    char text[256];
    const int length =
        snprintf(text, sizeof text,
                 "HTTP/1.1 %s\r\n%sContent-Length: 2\r\nConnection: close\r\n\r\nok",
                 status, more);

    (void)send(to, text, (size_t)length, MSG_NOSIGNAL);
}

static bool receive(int from)
{
    size_t used = 0, want = 0;
    char *end = NULL;

    memset(server.head, 0, sizeof server.head);
    while (end == NULL || used < want) {
        const ssize_t got =
            recv(from, server.head + used, sizeof server.head - 1 - used, 0);

        if (got <= 0) {
            return false;
        }
        used += (size_t)got;
        end = strstr(server.head, "\r\n\r\n");
        if (end != NULL) {
            const char *length = strcasestr(server.head, "Content-Length: ");

            want = (size_t)(end + 4 - server.head) +
                   (length != NULL ? strtoul(length + 16, NULL, 10) : 0);
        }
    }
    (void)snprintf(server.body, sizeof server.body, "%s", end + 4);
    return true;
}

static void *serve(void *unused)
{
    for (bool go_on = true; go_on;) {
        const int to = accept(server.socket, NULL, NULL);
        const char *path = server.head + 5; /* behind "POST " */

        if (to >= 0 && receive(to)) {
            (void)atomic_fetch_add(&server.requests, 1);
            go_on = strncmp(path, "/stop", 5) != 0;
            if (strncmp(path, "/down", 5) == 0) {
                answer(to, "500 Internal Server Error", "");
            } else if (strncmp(path, "/flaky", 6) == 0) {
                answer(to,
                       atomic_fetch_add(&server.flaky, 1) < 2 ? "503 Busy"
                                                              : "204 No Content",
                       "");
            } else if (strncmp(path, "/moved", 6) == 0) {
                answer(to, "307 Temporary Redirect", "Location: /good\r\n");
            } else if (strncmp(path, "/missing", 8) == 0) {
                answer(to, "404 Not Found", "");
            } else if (strncmp(path, "/late", 5) == 0) {
                answer(to, "408 Request Timeout", "");
            } else if (strncmp(path, "/often", 6) == 0) {
                answer(to, "429 Too Many Requests", "");
            } else if (strncmp(path, "/silent", 7) == 0) {
                (void)usleep(400000);
            } else {
                (void)usleep(strncmp(path, "/slow", 5) == 0 ? 200000 : 0);
                answer(to, "200 OK", "");
            }
        }
        (void)close(to);
    }
    return unused;
}

static int start_server(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;

    server.socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server.socket < 0 || bind(server.socket, (struct sockaddr *)&at, size) != 0 ||
        listen(server.socket, 64) != 0 ||
        getsockname(server.socket, (struct sockaddr *)&at, &size) != 0) {
        return -1;
    }
    server.port = ntohs(at.sin_port);
    (void)setenv("no_proxy", "127.0.0.1", 1);
    return pthread_create(&server.thread, NULL, serve, NULL) != 0 ? -1 : set_up(state);
}

/* Posts a finding; webhooks need libcurl: without, the tests of them are left out. */
static sonde_actions *webhook_to(const char *path, int port)
{
    /* A busy machine answers late; one that never answers is not waited for. */
    const double seconds = strcmp(path, "/silent") == 0 ? 0.3 : 20;
    const sonde_actions_options options = {.size = sizeof options,
                                           .webhook_seconds = seconds,
                                           .webhook_tries = 3,
                                           .backoff_seconds = 0.02,
                                           .each = true};
    sonde_actions *actions = NULL;
    sonde_diag diag = {0};
    char text[128];

    (void)snprintf(text, sizeof text, "webhook:http://127.0.0.1:%d%s", port, path);
    assert_int_equal(sonde_actions_create(&options, &actions, NULL), SONDE_OK);
    if (sonde_actions_add(actions, text, &diag) == SONDE_EUNSUPPORTED) {
        sonde_actions_destroy(actions);
        skip();
    }
    assert_int_equal(sonde_actions_count(actions), 1);
    return actions;
}

static int stop_server(void **state)
{
    const char *text = "POST /stop HTTP/1.1\r\n\r\n";
    const int to = socket(AF_INET, SOCK_STREAM, 0);
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)server.port),
                                   .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};

    if (to >= 0 && connect(to, (const struct sockaddr *)&at, sizeof at) == 0) {
        (void)send(to, text, strlen(text), MSG_NOSIGNAL);
        (void)pthread_join(server.thread, NULL);
    }
    (void)close(to);
    (void)close(server.socket);
    return tear_down(state);
}

static void webhooks_end_as_they_are_answered(void **state)
{
    static const struct {
        const char *path, *said;
        uint64_t done, tries;
    } cases[] = {{"/good", "status 200", 1, 1},
                 {"/slow", "status 200", 1, 1},
                 {"/flaky", "status 204", 1, 3},
                 {"/down", "failed repeatedly: status 500", 0, 3},
                 {"/missing", "failed: status 404", 0, 1},
                 {"/late", "failed repeatedly: status 408", 0, 3},
                 {"/often", "failed repeatedly: status 429", 0, 3},
                 {"/moved", "failed: status 307, a redirect to http://127.0.0.1:", 0, 1},
                 {"/silent", "failed repeatedly: ", 0, 3}};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        sonde_actions *actions = webhook_to(cases[i].path, server.port);
        sonde_actions_stats stats;

        log_text[0] = '\0';
        take(actions, "NonFinite", SONDE_SEVERITY_ERROR);
        stats = end_of(actions);
        if (stats.done != cases[i].done || stats.tries != cases[i].tries) {
            fail_msg("%s: %d done after %d tries: %s", cases[i].path, (int)stats.done,
                     (int)stats.tries, log_text);
        }
        assert_int_equal(stats.failed, 1 - cases[i].done);
        expect_logged(cases[i].said);
    }
}

static void a_webhook_posts_the_finding(void **state)
{
    const sonde_finding finding = finding_of("NonFinite", SONDE_SEVERITY_ERROR);
    sonde_actions *actions = webhook_to("/good", server.port);
    char json[1024];

    (void)state;
    (void)sonde_finding_json(&finding, json, sizeof json);
    take(actions, "NonFinite", SONDE_SEVERITY_ERROR);
    assert_int_equal(end_of(actions).done, 1);
    assert_string_equal(server.body, json);
    assert_non_null(strstr(server.head, "\r\nContent-Type: application/json\r\n"));
    assert_null(strstr(server.head, "Expect:"));
}

/* Between the tries of one that fails, others are served. */
static void a_webhook_that_fails_holds_nobody_up(void **state)
{
    const sonde_actions_options options = {.size = sizeof options,
                                           .webhook_seconds = 1.0,
                                           .webhook_tries = 2,
                                           .backoff_seconds = 20.0};
    sonde_actions *actions = webhook_to("/good", server.port); /* skips without libcurl */
    sonde_actions_stats stats;
    char text[128];

    (void)state;
    sonde_actions_destroy(actions);
    (void)snprintf(text, sizeof text, "webhook:http://127.0.0.1:%d/down", server.port);
    actions = actions_of(&options, text);
    (void)snprintf(text, sizeof text, "command:echo done >%s/done", folder);
    assert_int_equal(sonde_actions_add(actions, text, NULL), SONDE_OK);
    take(actions, "NonFinite", SONDE_SEVERITY_ERROR);
    assert_false(sonde_actions_finish(actions, 2.0)); /* the second try is not due yet */
    sonde_actions_get_stats(actions, &stats);
    assert_int_equal(stats.done, 1);
    assert_int_equal(stats.lost, 1);
    assert_int_equal(stats.tries, 1);
    assert_string_equal(content("done"), "done\n");
    sonde_actions_destroy(actions);
}

static void a_server_that_is_not_there_is_told(void **state)
{
    sonde_actions *actions = webhook_to("/", 1);
    sonde_actions_stats stats;

    (void)state;
    take(actions, "NonFinite", SONDE_SEVERITY_ERROR);
    stats = end_of(actions);
    assert_int_equal(stats.failed, 1);
    assert_int_equal(stats.tries, 3);
    expect_logged("failed repeatedly: ");
}

/* Options that are not given, and waits that double and vary. */
static void waits_and_defaults_are_those_of_the_header(void **state)
{
    sonde_actions *actions = NULL;

    (void)state;
    assert_int_equal(sonde_actions_create(NULL, &actions, NULL), SONDE_OK);
    assert_true(actions->options.command_seconds == 60.0);
    assert_true(actions->options.webhook_seconds == 10.0);
    assert_true(actions->options.backoff_seconds == 0.5);
    assert_int_equal(actions->options.webhook_tries, 5);
    assert_false(actions->options.each);
    sonde_actions_destroy(actions);
    for (int tried = 1; tried <= 5; tried++) {
        const double base = 2.0 * (double)(1 << (tried - 1));
        double least = INFINITY, most = 0.0;

        for (uint64_t seed = 0; seed < 1000; seed++) {
            const double wait = sonde__action_wait(2.0, tried, seed);

            least = fmin(least, wait);
            most = fmax(most, wait);
        }
        assert_true(least >= 0.5 * base && least < 0.51 * base);
        assert_true(most <= 1.5 * base && most > 1.49 * base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_and_defaults_are_those_of_the_header),
        cmocka_unit_test_setup_teardown(webhooks_end_as_they_are_answered, start_server,
                                        stop_server),
        cmocka_unit_test_setup_teardown(a_webhook_posts_the_finding, start_server,
                                        stop_server),
        cmocka_unit_test_setup_teardown(a_webhook_that_fails_holds_nobody_up,
                                        start_server, stop_server),
        cmocka_unit_test_setup_teardown(a_server_that_is_not_there_is_told, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
