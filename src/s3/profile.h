/*
 * profile.h - the files ~/.aws/credentials and ~/.aws/config. Internal.
 */
#ifndef SONDE_S3_PROFILE_H
#define SONDE_S3_PROFILE_H

typedef enum sonde__s3_profile_file {
    SONDE__S3_CREDENTIALS, /* AWS_SHARED_CREDENTIALS_FILE, ~/.aws/credentials */
    SONDE__S3_CONFIG       /* AWS_CONFIG_FILE, ~/.aws/config */
} sonde__s3_profile_file;

/* AWS_PROFILE, AWS_DEFAULT_PROFILE, or "default". */
const char *sonde__s3_profile(void);
/* The value of a key of the profile; new. "s3.addressing_style" is a key that is indented
 * under "s3 =". NULL: there is none, or memory ran out. */
char *sonde__s3_profile_value(sonde__s3_profile_file file, const char *key);

#endif
