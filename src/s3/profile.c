/*
 * profile.c - see profile.h.
 *
 *     [default]                 [profile work]     in config; in credentials [work]
 *     region = eu-west-1        s3 =
 *                                 addressing_style = path
 */
#include "s3/profile.h"
#include "base/memory.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 4096, NAME = 256 };

const char *sonde__s3_profile(void)
{
    const char *names[] = {getenv("AWS_PROFILE"), getenv("AWS_DEFAULT_PROFILE")};

    for (size_t i = 0; i < 2; i++) {
        if (names[i] != NULL && names[i][0] != '\0') {
            return names[i];
        }
    }
    return "default";
}

static FILE *open_file(sonde__s3_profile_file file)
{
    const bool config = file == SONDE__S3_CONFIG;
    const char *path = getenv(config ? "AWS_CONFIG_FILE" : "AWS_SHARED_CREDENTIALS_FILE");
    const char *home = getenv("HOME");
    char buf[PATH];

    if (path == NULL || path[0] == '\0') {
        const int length =
            snprintf(buf, sizeof buf, "%s/.aws/%s", home != NULL ? home : "",
                     config ? "config" : "credentials");

        if (length < 0 || (size_t)length >= sizeof buf) {
            return NULL;
        }
        path = buf;
    }
    return fopen(path, "re");
}

/* Cuts blanks at both ends. */
static char *trim(char *text)
{
    size_t length = 0;

    while (isspace((unsigned char)*text)) {
        text++;
    }
    length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1])) {
        text[--length] = '\0';
    }
    return text;
}

/* Whether "[line" begins the section of the profile. */
static bool is_section(char *line, sonde__s3_profile_file file)
{
    char *end = strchr(line, ']');
    char *name = NULL;

    if (end == NULL) {
        return false;
    }
    *end = '\0';
    name = trim(line + 1);
    if (file == SONDE__S3_CONFIG && strncmp(name, "profile", 7) == 0 &&
        isspace((unsigned char)name[7])) {
        name = trim(name + 7);
    }
    return strcmp(name, sonde__s3_profile()) == 0;
}

/* The value on the line if it has the key; parent: the last key that was not indented. */
static char *value_on(char *line, const char *key, char parent[NAME])
{
    const bool indented = isspace((unsigned char)line[0]);
    char *equals = strchr(line, '='), *name = NULL;
    char whole[2 * NAME];

    if (equals == NULL) {
        return NULL;
    }
    *equals = '\0';
    name = trim(line);
    if (indented) {
        (void)snprintf(whole, sizeof whole, "%s.%s", parent, name);
    } else {
        (void)snprintf(whole, sizeof whole, "%s", name);
        (void)snprintf(parent, NAME, "%s", name);
    }
    return strcmp(whole, key) == 0 ? trim(equals + 1) : NULL;
}

char *sonde__s3_profile_value(sonde__s3_profile_file file, const char *key)
{
    FILE *stream = open_file(file);
    char *line = NULL, *found = NULL, parent[NAME] = "";
    size_t room = 0;
    bool inside = false;

    if (stream == NULL) {
        return NULL;
    }
    while (found == NULL && getline(&line, &room, stream) >= 0) {
        if (line[0] == '#' || line[0] == ';') {
            continue;
        }
        if (line[0] == '[') {
            inside = is_section(line, file);
            parent[0] = '\0';
        } else if (inside) {
            const char *value = value_on(line, key, parent);

            found = value != NULL && value[0] != '\0' ? sonde__strdup(value) : NULL;
        }
    }
    free(line);
    (void)fclose(stream);
    return found;
}
