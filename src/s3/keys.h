/*
 * keys.h - credentials, found in the order of the AWS tools: environment, profile,
 * container, instance. Internal.
 */
#ifndef SONDE_S3_KEYS_H
#define SONDE_S3_KEYS_H

#include "s3/http.h"

typedef struct sonde__s3_keys {
    char *key, *secret, *token; /* token: NULL if there is none */
    double expires;             /* seconds since 1970; 0: never */
    const char *source;         /* where they are from, for people */
} sonde__s3_keys;

void sonde__s3_keys_fini(sonde__s3_keys *keys);
/* keys: new. SONDE_ENOTFOUND: there are none anywhere. line serves for the metadata
 * services. */
sonde_err sonde__s3_keys_find(sonde__s3_line *line, sonde__s3_keys *keys,
                              sonde_diag *diag);
/* Region of the instance; new; NULL: not on an instance. */
char *sonde__s3_keys_region(sonde__s3_line *line);

#endif
