/* fingerprint.c - digests that take a few milliseconds, whatever the size of the set. */
#include "data/loader/fingerprint.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"

/* Files are opened one by one, perhaps over a network. */
enum { N_FILES = 16, N_STORED = 64, SMALL_SET_BYTES = 1 << 18, MAX_NAMES = 1 << 16 };

static uint32_t names_of(const tutti_dataset *ds) {
    uint32_t crc = tti_dataset_listing(ds);
    for (int64_t i = 0; i < TTI_MIN(tutti_dataset_get_info(ds)->n_classes, (int64_t)MAX_NAMES);
         i++) {
        const char *name = tutti_dataset_class_name(ds, i);
        if (!name) break;
        crc = tti_crc32c(crc, name, strlen(name) + 1);
    }
    return crc;
}

/* How many samples are read. */
static int64_t n_read(const tutti_dataset *ds, size_t sample_bytes) {
    int64_t n = tutti_dataset_get_info(ds)->n_samples,
            most = tti_dataset_is_flat(ds) ? N_STORED : N_FILES;
    bool is_small =
        tti_dataset_is_flat(ds) && (uint64_t)n <= SMALL_SET_BYTES / TTI_MAX(sample_bytes, 1u);
    return is_small ? n : TTI_MIN(n, most);
}

/* The bytes of sample index and its labels, added to crc. */
static uint32_t add_sample(const tutti_dataset *ds, int64_t index, tti_workspace *ws, void *x,
                           int32_t *y, uint32_t crc) {
    static const char unreadable[] = "unreadable";
    memset(y, 0, tti_type_bytes(&tutti_dataset_get_info(ds)->y));
    const void *bytes;
    size_t n_bytes;
    if (tti_dataset_fetch(ds, index, ws, x, y, &bytes, &n_bytes) != TUTTI_OK) {
        tti_clear_error();
        return tti_crc32c(crc, unreadable, sizeof unreadable);
    }
    crc = tti_crc32c(crc, bytes, n_bytes);
    return tti_crc32c(crc, y, tti_type_bytes(&tutti_dataset_get_info(ds)->y));
}

tutti_status tti_dataset_fingerprint(const tutti_dataset *ds, tti_fingerprint *out) {
    size_t x_bytes = tti_type_bytes(tti_dataset_stored(ds)),
           y_bytes = tti_type_bytes(&tutti_dataset_get_info(ds)->y);
    int64_t n = n_read(ds, x_bytes + y_bytes), last = tutti_dataset_get_info(ds)->n_samples - 1;
    void *x = calloc(1, x_bytes + 1);
    int32_t *y = calloc(1, y_bytes + 1);
    tti_workspace ws = {0};
    *out = (tti_fingerprint){.names = names_of(ds)};
    bool has_memory = x && y;
    for (int64_t i = 0; has_memory && i < n; i++) {
        int64_t index = n > 1 ? (int64_t)((__int128)i * last / (n - 1)) : 0;
        out->content = add_sample(ds, index, &ws, x, y, out->content);
    }
    tti_workspace_free(&ws);
    free(x);
    free(y);
    return has_memory ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "data: out of memory");
}
