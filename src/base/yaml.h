/* yaml.h - a YAML text as a tree of raw scalars, sequences and mappings, with positions.
 *
 * Features that job files do not need are refused with a message: second documents, anchors,
 * aliases, merge keys, tags, keys that are not plain text, NUL bytes, more than TTI_YAML_MAX_DEPTH
 * levels, TTI_YAML_MAX_NODES values or TTI_YAML_MAX_BYTES bytes.  So a small file cannot become a
 * big tree.  Scalars stay text: the reader's schema defines their meaning.
 *
 * Messages have the form "source:line:column: error: text". */
#ifndef TTI_BASE_YAML_H
#define TTI_BASE_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "tutti/status.h"

enum { TTI_YAML_MAX_DEPTH = 64, TTI_YAML_MAX_NODES = 100000, TTI_YAML_MAX_BYTES = 1 << 20 };

typedef enum tti_yaml_kind { TTI_YAML_SCALAR, TTI_YAML_SEQUENCE, TTI_YAML_MAPPING } tti_yaml_kind;

typedef struct tti_yaml {
    tti_yaml_kind kind;
    bool plain;             /* a scalar without quotes: null means null */
    int line, column;       /* from 1; columns count characters, not bytes */
    const char *text;       /* scalar: UTF-8 without NUL bytes; otherwise NULL */
    struct tti_yaml *key;   /* the scalar before the colon; NULL outside mappings */
    struct tti_yaml *first; /* of a sequence or mapping, in the order of the text */
    struct tti_yaml *next;
} tti_yaml;

/* Reads the one document of a text.  The tree lives in arena and keeps no pointer into text.
 * source names the text in messages.  Returns TUTTI_E_CONFIG or TUTTI_E_NOMEM on failure. */
tutti_status tti_yaml_parse(const char *text, size_t n_bytes, const char *source, tti_arena *arena,
                            const tti_yaml **out);

/* The bytes of a regular file of at most TTI_YAML_MAX_BYTES, in arena, followed by a NUL. */
tutti_status tti_yaml_read_file(const char *path, tti_arena *arena, const char **text,
                                size_t *n_bytes);

#endif /* TTI_BASE_YAML_H */
