/* samples_record.c - compares the samples of a resumed run with the samples on which it was
 * trained.
 *
 * data.json holds properties of the training split, such as classes and statistics.  Data can
 * change without changing these, for example if labels are exchanged.  The file has one line per
 * split, and lines are compared as text. */
#include "train/setup/samples_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "data/files/byte_reader.h"
#include "data/loader/fingerprint.h"

enum { LINE_BYTES = 128, PATH_BYTES = 700, MAX_FILE_BYTES = 4096 };

static tutti_status describe(const tutti_dataset *ds, const char *split, char out[LINE_BYTES]) {
    tti_fingerprint print;
    TTI_TRY(tti_dataset_fingerprint(ds, &print));
    snprintf(out, LINE_BYTES, "%" PRId64 " %s samples, checksums %08" PRIx32 " %08" PRIx32,
             tutti_dataset_get_info(ds)->n_samples, split, print.names, print.content);
    return TUTTI_OK;
}

/* Describes the first line of a stored file that differs from now; "" if none does. */
static void compare(const char *was, const char now[TUTTI_N_SPLITS][LINE_BYTES], char *note,
                    size_t n_bytes) {
    for (int i = 0; i < TUTTI_N_SPLITS && *was; i++) {
        size_t n = strcspn(was, "\n");
        if (strlen(now[i]) != n || memcmp(was, now[i], n) != 0) {
            snprintf(note, n_bytes,
                     "the data is not that of the run before: it had %.*s, and now %s; the result "
                     "is not that of an uninterrupted run",
                     (int)TTI_MIN(n, (size_t)LINE_BYTES), was, now[i]);
            return;
        }
        was += n + (was[n] == '\n');
    }
}

tutti_status tti_samples_record_keep(const char *dir, const tutti_dataset *train,
                                     const tutti_dataset *test, char *note, size_t n_bytes) {
    char path[PATH_BYTES], now[TUTTI_N_SPLITS][LINE_BYTES], text[TUTTI_N_SPLITS * LINE_BYTES];
    char *was = NULL;
    size_t n_was = 0;
    note[0] = '\0';
    TTI_TRY(describe(train, "training", now[TUTTI_TRAIN]));
    TTI_TRY(describe(test, "test", now[TUTTI_TEST]));
    int n = snprintf(text, sizeof text, "%s\n%s\n", now[TUTTI_TRAIN], now[TUTTI_TEST]);
    snprintf(path, sizeof path, "%s/" TTI_SAMPLES_FILE, dir);
    if (access(path, F_OK) == 0) {
        TTI_TRY(tti_read_file(path, MAX_FILE_BYTES, &was, &n_was));
        compare(was, now, note, n_bytes);
        free(was);
        if (!note[0]) return TUTTI_OK;
    }
    return tti_atomic_file_save(path, text, (size_t)n);
}
