/*
 * smdebug_event.h - records of smdebug's event files, from bytes in memory. Internal.
 *
 *     u64 length | u32 masked CRC32C of these 8 bytes | payload | u32 footer
 *
 * The payload is a protobuf `Event` whose summary has one value: a tag (the tensor's
 * name) and a TensorProto with its bytes in tensor_content. smdebug's own files have a
 * constant where TFRecord has the payload's checksum; both are accepted.
 */
#ifndef SONDE_TRIAL_SMDEBUG_EVENT_H
#define SONDE_TRIAL_SMDEBUG_EVENT_H

#include <sonde/error.h>
#include <sonde/tensor.h>

#include <stddef.h>
#include <stdint.h>

/* The checksum of Castagnoli's polynomial. About a nanosecond a byte. */
SONDE_API uint32_t sonde__smdebug_crc32c(const void *bytes, size_t size);
/* As TFRecord stores it. */
SONDE_API uint32_t sonde__smdebug_masked_crc32c(const void *bytes, size_t size);

/* Checks that the bytes are exactly one record, its length and its checksums; *payload
 * points into them. title is for diagnostics. */
SONDE_CHECKED sonde_err sonde__smdebug_event_unwrap(const unsigned char *bytes,
                                                    size_t size, const char *title,
                                                    const unsigned char **payload,
                                                    size_t *payload_size,
                                                    sonde_diag *diag);
/* When a record was made, in ns since 1970, from its first bytes; 0: they do not say. */
enum { SONDE__IMPORT_EVENT_HEAD = 21 };
int64_t sonde__smdebug_event_time(const unsigned char head[SONDE__IMPORT_EVENT_HEAD]);
/* The tensor with a tag in an event, as a view into the payload. SONDE_EUNSUPPORTED: it
 * has a dtype that Sonde does not have, or more than 8 dimensions. */
SONDE_API SONDE_CHECKED sonde_err
sonde__smdebug_event_tensor(const unsigned char *payload, size_t size, const char *tag,
                            const char *title, sonde_view *view, sonde_diag *diag);

#endif
