/* data_spec_fuzz.c - any bytes as a data.json: refused, or printed and read again to the same text,
 * and opened as a data set without files.  The input is the JSON object itself; its checksum line
 * would let nothing through. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/data_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void open_without_files(tti_data_spec *spec) {
    tutti_dataset *ds;
    if (tutti_dataset_open(&(tutti_dataset_desc){.spec = spec, .no_files = true}, &ds) == TUTTI_OK)
        tutti_dataset_destroy(ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    tti_data_spec *spec, *again;
    bool has_tokenizer;
    const char *bytes = (const char *)data;
    if (tti_data_spec_parse("fuzz", bytes, n_bytes, &spec, &has_tokenizer) == TUTTI_OK)
        tti_data_spec_release(spec);
    if (tti_data_spec_parse_body("fuzz", bytes, n_bytes, &spec, &has_tokenizer) != TUTTI_OK)
        return 0;
    tti_str text = {0}, text_again = {0};
    tutti_status st = tti_data_spec_print(spec, &text);
    TTI_ASSERT(st == TUTTI_OK);
    st = tti_data_spec_parse("fuzz", text.text, text.n_bytes, &again, &has_tokenizer);
    TTI_ASSERT(st == TUTTI_OK);
    st = tti_data_spec_print(again, &text_again);
    TTI_ASSERT(st == TUTTI_OK && strcmp(text.text, text_again.text) == 0);
    open_without_files(again);
    tti_str_free(&text);
    tti_str_free(&text_again);
    tti_data_spec_release(again);
    tti_data_spec_release(spec);
    return 0;
}
