/* json_crc.h - JSON files whose first line holds a checksum of the rest.
 *
 *     {"manifest_crc32c":"0a1b2c3d",
 *      "format":"tutti-checkpoint", ...
 *
 * The first member is the CRC-32C of every byte after the first line.  The whole file is one JSON
 * object, so any JSON reader can read it. */
#ifndef TTI_BASE_JSON_CRC_H
#define TTI_BASE_JSON_CRC_H

#include "base/str.h"
#include "tutti/types.h"

/* Appends the object in body to out, with the checksum under key as its first member.  Body is
 * "{\n..." as tti_json writes it with an indent.  TUTTI_E_NOMEM if body or out ran out of memory;
 * out is then unusable. */
tutti_status tti_json_crc_print(const char *key, const tti_str *body, tti_str *out);

/* TUTTI_OK if text begins with the first line that tti_json_crc_print writes for its contents, else
 * TUTTI_E_CHECKPOINT; what is the name at the begin of the message. */
tutti_status tti_json_crc_check(const char *what, const char *key, const char *text,
                                size_t n_bytes);

#endif /* TTI_BASE_JSON_CRC_H */
