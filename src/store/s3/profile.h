/*
 * profile.h - the files ~/.aws/credentials and ~/.aws/config, and the variables that come
 * before them. Internal.
 *
 * A name such as "s3.addressing_style" stands for a key that is indented under "s3 =".
 * Values are new; NULL: there is none, or memory ran out.
 */
#ifndef SONDE_S3_PROFILE_H
#define SONDE_S3_PROFILE_H

#include <stdbool.h>

typedef enum sonde__s3_profile_file {
    SONDE__S3_CREDENTIALS, /* AWS_SHARED_CREDENTIALS_FILE, ~/.aws/credentials */
    SONDE__S3_CONFIG       /* AWS_CONFIG_FILE, ~/.aws/config */
} sonde__s3_profile_file;

/* A variable of the environment; NULL if it is empty. */
const char *sonde__s3_variable(const char *name);
/* A positive number in the environment, or the usual one. */
double sonde__s3_setting(const char *name, double usual);
/* AWS_PROFILE, AWS_DEFAULT_PROFILE, or "default". */
const char *sonde__s3_profile(void);
bool sonde__s3_profile_exists(const char *profile);
/* The value of a key in one file. */
char *sonde__s3_profile_in(sonde__s3_profile_file file, const char *profile,
                           const char *key);
/* The value of a key in the credentials, or else in the config. */
char *sonde__s3_profile_value(const char *profile, const char *key);
/* Whether the profile has a value for the key. */
bool sonde__s3_profile_has(const char *profile, const char *key);

/* AWS_REGION, AWS_DEFAULT_REGION, or region of the profile. */
char *sonde__s3_region(const char *profile);
/* The endpoint that is configured for a service: "s3", "sts".
 * AWS_ENDPOINT_URL_<SERVICE>, AWS_ENDPOINT_URL, endpoint_url of the service in the
 * profile's [services], endpoint_url of the profile. */
char *sonde__s3_endpoint(const char *profile, const char *service);
/* That, or AWS's: "https://<host>.<region>.amazonaws.com". */
char *sonde__s3_service_url(const char *profile, const char *service, const char *host,
                            const char *region);
/* "amazonaws.com", or that of China. */
const char *sonde__s3_domain(const char *region);

#endif
