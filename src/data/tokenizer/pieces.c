/* pieces.c - the texts of a vocabulary in one array, and what every kind says of bad UTF-8. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/tokenizer/tokenizer.h"

tutti_status tti_pieces_init(tti_pieces *pieces, size_t n_max, size_t n_bytes_max) {
    *pieces = (tti_pieces){.start = calloc(n_max + 1, sizeof(uint32_t)),
                           .bytes = malloc(n_bytes_max + 1)};
    if (pieces->start && pieces->bytes && n_bytes_max < UINT32_MAX) return TUTTI_OK;
    tti_pieces_free(pieces);
    return tti_fail(TUTTI_E_NOMEM, "tokenizer: out of memory");
}

void tti_pieces_free(tti_pieces *pieces) {
    free(pieces->start);
    free(pieces->bytes);
    *pieces = (tti_pieces){0};
}

tutti_status tti_not_utf8(const char *text, size_t n_bytes, size_t at) {
    int line = 1;
    for (size_t i = 0; i < at; i++) line += text[i] == '\n';
    return tti_fail(TUTTI_E_DATA, "not UTF-8 at byte %zu (line %d): %02x%s", at, line,
                    (unsigned)(uint8_t)text[at], at + 1 == n_bytes ? ", the last byte" : "");
}
