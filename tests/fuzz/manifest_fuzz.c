/* manifest_fuzz.c - any bytes as a manifest: refused, or printed and read again to the same text.
 * The input is the JSON object itself; its checksum line would let nothing through. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ckpt/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    tti_manifest manifest, again;
    tutti_status st = tti_manifest_parse((const char *)data, n_bytes, &manifest);
    if (st == TUTTI_OK) tti_manifest_free(&manifest);
    if (tti_manifest_parse_body((const char *)data, n_bytes, &manifest) != TUTTI_OK) return 0;
    tti_str text = {0}, text_again = {0};
    st = tti_manifest_print(&manifest, &text);
    TTI_ASSERT(st == TUTTI_OK);
    st = tti_manifest_parse(text.text, text.n_bytes, &again);
    TTI_ASSERT(st == TUTTI_OK);
    st = tti_manifest_print(&again, &text_again);
    TTI_ASSERT(st == TUTTI_OK && strcmp(text.text, text_again.text) == 0);
    tti_str_free(&text);
    tti_str_free(&text_again);
    tti_manifest_free(&again);
    tti_manifest_free(&manifest);
    return 0;
}
