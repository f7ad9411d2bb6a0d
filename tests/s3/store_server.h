/*
 * store_server.h - server.py for tests in C: started before the tests of a program, its
 * address and keys in the environment; root is a folder that is removed with it.
 */
#ifndef SONDE_TESTS_S3_STORE_SERVER_H
#define SONDE_TESTS_S3_STORE_SERVER_H

#include "cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char root[] = "/tmp/sonde-store.XXXXXX";
static pid_t server;

static inline const char *in_root(char path[256], const char *name)
{
    (void)snprintf(path, 256, "%s/%s", root, name);
    return path;
}

/* The port that the server writes to its file. */
static inline int read_port(const char *path)
{
    const struct timespec nap = {0, 20 * 1000 * 1000};

    for (int i = 0; i < 3000; i++) {
        FILE *stream = fopen(path, "re");
        int port = 0;

        if (stream != NULL && fscanf(stream, "%d", &port) != 1) {
            port = 0;
        }
        if (stream != NULL) {
            (void)fclose(stream);
        }
        if (port > 0) {
            return port;
        }
        (void)nanosleep(&nap, NULL);
    }
    return 0;
}

static inline int set_up(void **state)
{
    char path[256], url[64];
    int port = 0;

    (void)state;
    if (mkdtemp(root) == NULL) {
        return -1;
    }
    (void)in_root(path, "port");
    server = fork();
    if (server == 0) {
        (void)execlp("python3", "python3", SONDE_TEST_DIR "/s3/server.py", path,
                     (char *)NULL);
        _exit(127);
    }
    port = read_port(path);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    (void)setenv("AWS_ENDPOINT_URL", url, 1);
    (void)setenv("AWS_ACCESS_KEY_ID", "AKIATEST", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "secret/of+test", 1);
    (void)setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    (void)setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    (void)setenv("SONDE_CACHE", in_root(path, "cache"), 1);
    (void)unsetenv("AWS_SESSION_TOKEN");
    (void)unsetenv("AWS_REGION");
    return port > 0 ? 0 : -1;
}

static inline int tear_down(void **state)
{
    char command[64];

    (void)state;
    (void)kill(server, SIGKILL);
    (void)waitpid(server, NULL, 0);
    (void)snprintf(command, sizeof command, "rm -r %s", root);
    return system(command) == 0 ? 0 : -1;
}

#endif
