/* json_read.h - strict reading of JSON from files that may be hostile, over jansson.
 *
 * Every failure is TUTTI_E_CHECKPOINT and gives the place: the argument what begins each message,
 * such as "model.safetensors: tensor 'w'".  Numbers must be integers, duplicate keys are refused,
 * nesting is at most 64 deep, text is UTF-8. */
#ifndef TTI_BASE_JSON_READ_H
#define TTI_BASE_JSON_READ_H

#include <jansson.h>

#include "tutti/types.h"

enum { TTI_CKPT_MAX_NAME = 512 };

/* Parses n_bytes of text, an object, with nothing but white space around it.  On success *out is
 * owned by the caller (json_decref); on failure it is NULL. */
tutti_status tti_json_parse(const char *what, const char *text, size_t n_bytes, json_t **out);

/* TUTTI_E_CHECKPOINT if a number of the text is not 0 but so small that it would be read as 0, such
 * as 1e-400.  Other faults are left to the parser. */
tutti_status tti_json_check_numbers(const char *what, const char *text, size_t n_bytes);

/* The member of an object, which must be there and of that type; borrowed from object. */
tutti_status tti_json_member(const char *what, const json_t *object, const char *key,
                             json_type type, json_t **out);

/* An integer member in min .. max. */
tutti_status tti_json_read_int(const char *what, const json_t *object, const char *key, int64_t min,
                               int64_t max, int64_t *out);

/* A text member, borrowed from object. */
tutti_status tti_json_read_text(const char *what, const json_t *object, const char *key,
                                const char **out);

/* A text member of exactly n_digits lower-case hex digits (at most 16). */
tutti_status tti_json_read_hex(const char *what, const json_t *object, const char *key,
                               int n_digits, uint64_t *out);

/* The member "shape" of a tensor with a known dtype: at most 8 dimensions of at most 2^40, and a
 * number of bytes below 2^62, which is stored in *n_bytes. */
tutti_status tti_json_read_shape(const char *what, const json_t *object, tutti_dtype dtype,
                                 tutti_type *out, uint64_t *n_bytes);

/* The members "dtype" and "shape".  Fails for a dtype that Tutti does not have. */
tutti_status tti_json_read_type(const char *what, const json_t *object, tutti_type *out,
                                uint64_t *n_bytes);

/* Bytes of a type that may be hostile: TUTTI_E_CHECKPOINT beyond the limits above. */
tutti_status tti_ckpt_type_bytes(const char *what, const tutti_type *type, uint64_t *n_bytes);

/* The dtype as safetensors files name it, "F32". */
const char *tti_safetensors_dtype(tutti_dtype dtype);

/* TUTTI_OK if name may name a tensor: 1 .. 512 bytes of UTF-8, no control characters. */
tutti_status tti_ckpt_check_name(const char *what, const char *name);

#endif /* TTI_BASE_JSON_READ_H */
