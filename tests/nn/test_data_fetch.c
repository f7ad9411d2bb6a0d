/*
 * test_data_fetch.c - downloads from a small server on 127.0.0.1: whole, resumed,
 * refused, wrong, broken off. And SHA-256 on its known answers.
 */
#include "nn/data/files.h"
#include "nn/data_files.h"

#include <sonde/nn/dataset.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { BODY = 100000 };

/* The server: one request a connection. Paths say how to answer:
 *     /good      with ranges          /norange   whole, whatever is asked for
 *     /cut       half of what it promises        /missing   404
 *     /moved     302 to /good         /stop      ends the server */
static struct {
    int socket;
    int port;
    pthread_t thread;
    unsigned char body[BODY];
    char digest[65];
    atomic_int requests;
    atomic_long range; /* first byte that the last request asked for, -1: none */
} server;

static void send_all(int to, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size > 0) {
        const ssize_t done = send(to, at, size, MSG_NOSIGNAL);

        if (done <= 0) {
            return;
        }
        at += done;
        size -= (size_t)done;
    }
}

static void answer(int to, const char *status, const char *more, const void *body,
                   size_t promised, size_t sent)
{
    char head[512];
    const int length =
        snprintf(head, sizeof head,
                 "HTTP/1.1 %s\r\nContent-Length: %zu\r\n%sConnection: close\r\n\r\n",
                 status, promised, more);

    send_all(to, head, (size_t)length);
    send_all(to, body, sent);
}

static void answer_range(int to, long first)
{
    char more[128];

    if (first >= BODY) {
        answer(to, "416 Range Not Satisfiable", "", "", 0, 0);
        return;
    }
    (void)snprintf(more, sizeof more, "Content-Range: bytes %ld-%d/%d\r\n", first,
                   BODY - 1, BODY);
    answer(to, "206 Partial Content", more, server.body + first, (size_t)(BODY - first),
           (size_t)(BODY - first));
}

/* false: the end. */
static bool serve(int to)
{
    char request[2048] = "";
    size_t used = 0;
    const char *range = NULL;
    long first = -1;

    while (strstr(request, "\r\n\r\n") == NULL && used + 1 < sizeof request) {
        const ssize_t got = recv(to, request + used, sizeof request - 1 - used, 0);

        if (got <= 0) {
            return true;
        }
        used += (size_t)got;
        request[used] = '\0';
    }
    range = strstr(request, "Range: bytes=");
    if (range != NULL) {
        first = strtol(range + 13, NULL, 10);
    }
    (void)atomic_fetch_add(&server.requests, 1);
    atomic_store(&server.range, first);
    if (strncmp(request, "GET /good", 9) == 0 && first >= 0) {
        answer_range(to, first);
    } else if (strncmp(request, "GET /good", 9) == 0 ||
               strncmp(request, "GET /norange", 12) == 0) {
        answer(to, "200 OK", "", server.body, BODY, BODY);
    } else if (strncmp(request, "GET /cut", 8) == 0) {
        answer(to, "200 OK", "", server.body, BODY, BODY / 2);
    } else if (strncmp(request, "GET /moved", 10) == 0) {
        answer(to, "302 Found", "Location: /good\r\n", "", 0, 0);
    } else {
        answer(to, "404 Not Found", "", "no", 2, 2);
    }
    return strncmp(request, "GET /stop", 9) != 0;
}

static void *run_server(void *unused)
{
    bool go_on = true;

    while (go_on) {
        const int to = accept(server.socket, NULL, NULL);

        if (to < 0) {
            break;
        }
        go_on = serve(to);
        (void)close(to);
    }
    return unused;
}

static int start(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    unsigned char sum[32];

    for (size_t i = 0; i < BODY; i++) {
        server.body[i] = (unsigned char)(i * 7 + i / 256);
    }
    assert_int_equal(EVP_Digest(server.body, BODY, sum, NULL, EVP_sha256(), NULL), 1);
    for (size_t i = 0; i < sizeof sum; i++) {
        (void)snprintf(server.digest + 2 * i, 3, "%02x", sum[i]);
    }
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server.socket = socket(AF_INET, SOCK_STREAM, 0);
    if (server.socket < 0 ||
        bind(server.socket, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(server.socket, 8) != 0 ||
        getsockname(server.socket, (struct sockaddr *)&address, &size) != 0) {
        return -1;
    }
    server.port = ntohs(address.sin_port);
    (void)setenv("no_proxy", "127.0.0.1", 1);
    return data_folder_make(state) != 0 ||
                   pthread_create(&server.thread, NULL, run_server, NULL) != 0
               ? -1
               : 0;
}

static const char *url(const char *path)
{
    static char urls[2][128];
    static int turn;
    char *text = urls[turn++ % 2];

    (void)snprintf(text, sizeof urls[0], "http://127.0.0.1:%d/%s", server.port, path);
    return text;
}

static int finish(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const int to = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_port = htons((uint16_t)server.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(to, (struct sockaddr *)&address, sizeof address) == 0) {
        send_all(to, "GET /stop HTTP/1.1\r\n\r\n", 22);
        (void)pthread_join(server.thread, NULL);
    }
    (void)close(to);
    (void)close(server.socket);
    return data_folder_remove(state);
}

/* Fetches into the folder as name; the whole body is expected when err is OK. */
static void fetch(const char *from, const char *sha256, const char *name, sonde_err err,
                  const char *words)
{
    const sonde__data_remote_file file = {.url = from, .sha256 = sha256};
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE] = "";
    const sonde_err got = sonde__data_fetch_file(&file, data_path(name), NULL, &diag);

    if (got != SONDE_OK) {
        (void)sonde_diag_line(&diag, line, sizeof line);
    }
    if (got == SONDE_EUNSUPPORTED) {
        skip(); /* no libcurl here */
    }
    if (got != err || strstr(line, words) == NULL) {
        fail_msg("%s: '%s' lacks '%s'", sonde_err_name(got), line, words);
    }
    assert_int_equal(access(data_path(name), F_OK), err == SONDE_OK ? 0 : -1);
    if (err == SONDE_OK) {
        size_t size = 0;
        unsigned char *bytes = data_read(data_path(name), &size);

        assert_int_equal(size, BODY);
        assert_memory_equal(bytes, server.body, BODY);
        free(bytes);
    }
}

static long part_size(const char *name)
{
    struct stat status;
    char path[DATA_PATH];

    (void)snprintf(path, sizeof path, "%s.part", data_path(name));
    return stat(path, &status) == 0 ? (long)status.st_size : -1;
}

static void a_file_is_fetched_and_checked(void **state)
{
    const int before = atomic_load(&server.requests);

    (void)state;
    fetch(url("good"), server.digest, "whole", SONDE_OK, "");
    assert_int_equal(part_size("whole"), -1);
    fetch(url("good"), server.digest, "whole", SONDE_OK,
          ""); /* is there: not asked for */
    assert_int_equal(atomic_load(&server.requests), before + 1);
    fetch(url("moved"), server.digest, "moved", SONDE_OK, "");
    fetch(url("good"), NULL, "unchecked", SONDE_OK, "");
}

static void a_part_is_taken_up_where_it_ends(void **state)
{
    (void)state;
    data_write(data_path("p.part"), server.body, 33333);
    fetch(url("good"), server.digest, "p", SONDE_OK, "");
    assert_int_equal(atomic_load(&server.range), 33333);
    data_write(data_path("q.part"), server.body, BODY); /* complete, only not renamed */
    fetch(url("good"), server.digest, "q", SONDE_OK, "");
    assert_int_equal(atomic_load(&server.range), BODY);
    data_write(data_path("r.part"), server.body, 33333); /* the server knows no ranges */
    fetch(url("norange"), server.digest, "r", SONDE_OK, "");
    data_write(data_path("s.part"), "something else", 14); /* a part of another file */
    fetch(url("good"), server.digest, "s", SONDE_OK, "");
    assert_int_equal(atomic_load(&server.range), -1);
}

static void a_broken_transfer_can_be_taken_up(void **state)
{
    (void)state;
    fetch(url("cut"), server.digest, "c", SONDE_EIO, "cannot download");
    assert_int_equal(part_size("c"), BODY / 2);
    fetch(url("good"), server.digest, "c", SONDE_OK, "");
    assert_int_equal(atomic_load(&server.range), BODY / 2);
}

static void wrong_contents_are_thrown_away(void **state)
{
    static const char other[] =
        "0000000000000000000000000000000000000000000000000000000000000000";

    (void)state;
    fetch(url("good"), other, "w", SONDE_EFORMAT, "wrong contents: its SHA-256 is");
    assert_int_equal(part_size("w"), -1);
}

static void what_cannot_be_had_says_why(void **state)
{
    (void)state;
    fetch(url("missing"), server.digest, "m", SONDE_ENOTFOUND, "404");
    assert_int_equal(part_size("m"), -1);
    fetch("http://127.0.0.1:1/x", server.digest, "n", SONDE_EIO, "cannot download: ");
    fetch("http://no-such-host.invalid/x", NULL, "o", SONDE_EIO, "no-such-host.invalid");
    fetch(url("good"), NULL, "no/such/folder", SONDE_ENOTFOUND, "cannot write");
}

static bool stop_at_once(void *user, const char *name, uint64_t done, uint64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    assert_string_equal(name, "i");
    return false;
}

static bool remember(void *user, const char *name, uint64_t done, uint64_t total)
{
    uint64_t *last = user;

    (void)name;
    assert_true(total == 0 || done <= total);
    *last = done;
    return true;
}

static void progress_is_told_and_may_stop(void **state)
{
    const sonde__data_remote_file file = {.url = url("good"), .sha256 = server.digest};
    uint64_t last = 0;
    const sonde_nn_fetch_options stop = {.size = sizeof stop, .progress = stop_at_once};
    const sonde_nn_fetch_options watch = {
        .size = sizeof watch, .progress = remember, .user = &last};
    sonde_diag diag = {0};
    sonde_err err = sonde__data_fetch_file(&file, data_path("i"), &stop, &diag);

    (void)state;
    if (err == SONDE_EUNSUPPORTED) {
        skip();
    }
    assert_int_equal(err, SONDE_EINTERRUPTED);
    assert_non_null(strstr(diag.found, "i.part"));
    assert_int_equal(sonde__data_fetch_file(&file, data_path("i"), &watch, NULL),
                     SONDE_OK);
    assert_int_equal(last, BODY);
}

/* A set whose files are what the server has for them: nothing, then the wrong thing. */
static void sets_are_fetched_by_name(void **state)
{
    char mirror[128];
    sonde_nn_fetch_options options = {.size = sizeof options, .mirror = mirror};
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    (void)state;
    assert_int_equal(sonde_nn_data_fetch("cifar", NULL, NULL, &diag), SONDE_ENOTFOUND);
    assert_string_equal(diag.expected, "fashion-mnist or mnist");
    (void)snprintf(mirror, sizeof mirror, "http://127.0.0.1:%d/missing", server.port);
    err = sonde_nn_data_fetch("mnist", data_path("set/deep"), &options, &diag);
    if (err == SONDE_EUNSUPPORTED) {
        skip();
    }
    assert_int_equal(err, SONDE_ENOTFOUND);
    assert_non_null(strstr(diag.where, "/missing/train-images-idx3-ubyte.gz"));
    (void)snprintf(mirror, sizeof mirror, "http://127.0.0.1:%d/good", server.port);
    err = sonde_nn_data_fetch("mnist", data_path("set/deep"), &options, &diag);
    assert_int_equal(err, SONDE_EFORMAT);
    assert_non_null(strstr(diag.found, "SHA-256 (unzipped)"));
}

/* The digests in the table are of the content: $SONDE_DATA's files, copied by curl
 * itself. */
static void published_digests_are_of_the_content(void **state)
{
    char mirror[DATA_PATH], where[DATA_PATH];
    const sonde_nn_fetch_options options = {.size = sizeof options, .mirror = mirror};
    const char *data = getenv("SONDE_DATA");
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    (void)state;
    if (data == NULL || data[0] != '/') {
        skip();
    }
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "mnist" : "fashion-mnist";

        (void)snprintf(mirror, sizeof mirror, "file://%s/%s", data, name);
        (void)snprintf(where, sizeof where, "%s/%s", data_folder, name);
        if (sonde_nn_data_fetch(name, where, &options, &diag) != SONDE_OK) {
            fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
        }
    }
}

/* In a child that may open one more file, which is the part: none is left for libcurl. It
 * runs before anything has loaded it. */
static void a_missing_libcurl_is_named(void **state)
{
    int status = 0;
    const pid_t child = fork();

    (void)state;
    assert_true(child >= 0);
    if (child == 0) {
        const sonde__data_remote_file file = {.url = url("good")};
        const int next = dup(0);
        const struct rlimit limit = {(rlim_t)next + 1, (rlim_t)next + 1};
        sonde_diag diag = {0};

        (void)close(next);
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0 ||
            sonde__data_fetch_file(&file, data_path("l"), NULL, &diag) !=
                SONDE_EUNSUPPORTED ||
            strstr(diag.expected, "install the package libcurl4") == NULL) {
            _exit(1);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_libcurl_is_named),
        cmocka_unit_test(a_file_is_fetched_and_checked),
        cmocka_unit_test(a_part_is_taken_up_where_it_ends),
        cmocka_unit_test(a_broken_transfer_can_be_taken_up),
        cmocka_unit_test(wrong_contents_are_thrown_away),
        cmocka_unit_test(what_cannot_be_had_says_why),
        cmocka_unit_test(progress_is_told_and_may_stop),
        cmocka_unit_test(sets_are_fetched_by_name),
        cmocka_unit_test(published_digests_are_of_the_content),
    };

    return cmocka_run_group_tests(tests, start, finish);
}
