/*
 * keys.h - credentials, found in the order of the AWS tools. Internal.
 *
 *     environment                 AWS_ACCESS_KEY_ID
 *     the AWS command line        role_arn with source_profile or credential_source,
 *                                 sso_session or sso_start_url of the profile
 *     role by a token             AWS_WEB_IDENTITY_TOKEN_FILE, or the profile's
 *     keys in ~/.aws/credentials
 *     a process                   credential_process of the profile
 *     keys in ~/.aws/config
 *     container, instance
 *
 * The first source that is configured counts: if it fails, the others are not asked.
 */
#ifndef SONDE_S3_KEYS_H
#define SONDE_S3_KEYS_H

#include "store/s3/http.h"

#include <stdbool.h>

typedef struct sonde__s3_keys {
    char *key, *secret, *token; /* token: NULL if there is none */
    double renew;     /* seconds since 1970 at which to find new ones; 0: never */
    double renew_at;  /* the same on the clock of sonde__now */
    char source[160]; /* where they are from, for people */
    bool of_instance;
} sonde__s3_keys;

void sonde__s3_keys_fini(sonde__s3_keys *keys);
/* New ones are to be found after so many seconds. */
void sonde__s3_keys_renew_after(sonde__s3_keys *keys, double seconds);
/* Whether that time is over, by the system's clock or by the monotonic one: the first may
 * be set back, and the second stands still while the machine sleeps. */
bool sonde__s3_keys_are_old(const sonde__s3_keys *keys);
/* keys: new. SONDE_ENOTFOUND: no source is configured. line serves for requests. */
sonde_err sonde__s3_keys_find(sonde__s3_line *line, sonde__s3_keys *keys,
                              sonde_diag *diag);
/* Region of the instance; new; NULL: not on an instance. */
char *sonde__s3_keys_region(sonde__s3_line *line);

/* --- the sources -------------------------------------------------------------------- */

/* SONDE_ENOTFOUND of a source: it is not configured. keys: empty, filled on success. */

/* keys_service.c: AssumeRoleWithWebIdentity, the container, the instance. */
sonde_err sonde__s3_keys_of_token(sonde__s3_line *line, const char *profile,
                                  sonde__s3_keys *keys, sonde_diag *diag);
sonde_err sonde__s3_keys_of_container(sonde__s3_line *line, sonde__s3_keys *keys,
                                      sonde_diag *diag);
sonde_err sonde__s3_keys_of_instance(sonde__s3_line *line, sonde__s3_keys *keys);

/* keys_process.c: runs credential_process of the profile, for `most` seconds at most; or,
 * for a role or single sign-on, `aws configure export-credentials`. */
sonde_err sonde__s3_keys_of_process(const char *profile, double most,
                                    sonde__s3_keys *keys, sonde_diag *diag);
sonde_err sonde__s3_keys_of_aws(const char *profile, double most, sonde__s3_keys *keys,
                                sonde_diag *diag);

/* --- for the sources --------------------------------------------------- */

/* Copies the parts, of which token and expires ("2030-01-31T12:00:00Z") may be NULL. where
 * names the source. SONDE_EFORMAT: key or secret is missing, or they are expired. */
sonde_err sonde__s3_keys_take(sonde__s3_keys *keys, const char *key, const char *secret,
                              const char *token, const char *expires, const char *where,
                              sonde_diag *diag);
/* Takes the members AccessKeyId, SecretAccessKey, `token` and Expiration of JSON. */
sonde_err sonde__s3_keys_take_json(sonde__s3_keys *keys, const sonde_text *text,
                                   const char *token, const char *where,
                                   sonde_diag *diag);
/* Seconds since 1970 of a time in ISO 8601; 0: it is none. */
double sonde__s3_time(const char *text);

#endif
