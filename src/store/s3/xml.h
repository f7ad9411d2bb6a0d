/*
 * xml.h - the texts of elements in the answers of AWS: no attributes, no nesting of an
 * element in itself. Internal.
 */
#ifndef SONDE_S3_XML_H
#define SONDE_S3_XML_H

#include <sonde/text.h>

#include <stdbool.h>
#include <stddef.h>

/* Copies the text between the next <tag> and </tag> to value, with entities decoded, and
 * moves *place (in a NUL-terminated text) past them. False: there is none. */
bool sonde__s3_xml(const char **place, const char *tag, char *value, size_t size);
/* The first one of a body, which may be empty. */
bool sonde__s3_xml_first(const sonde_text *body, const char *tag, char *value,
                         size_t size);

#endif
