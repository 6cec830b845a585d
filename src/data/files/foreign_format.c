/* foreign_format.c - implements foreign_format.h. */
#include "data/files/foreign_format.h"

#include <string.h>

#include "base/error.h"

const char *tti_foreign_format(const void *bytes, size_t n_bytes) {
    static const struct {
        const char *first, *name;
    } known[] = {
        {"\x93NUMPY", "a NumPy file (data.format=npy reads it)"},
        {"PK\x03\x04", "a ZIP archive or an Excel workbook (.xlsx), or a file of torch.save"},
        {"\xD0\xCF\x11\xE0", "an Excel workbook (.xls)"},
        {"PAR1", "a Parquet file"},
        {"ARROW1", "an Arrow file"},
        {"BZh", "compressed by bzip2"},
        {"\xFD"
         "7zXZ",
         "compressed by xz"},
        {"\x28\xB5\x2F\xFD", "compressed by zstd"},
        {"7z\xBC\xAF", "a 7z archive"},
        {"SQLite format 3", "an SQLite database"},
        {"%PDF-", "a PDF file"}};
    for (size_t i = 0; i < TTI_COUNT(known); i++) {
        size_t n = strlen(known[i].first);
        if (n_bytes >= n && memcmp(bytes, known[i].first, n) == 0) return known[i].name;
    }
    return NULL;
}

tutti_status tti_check_plain_text(const char *path, const char *text, size_t n_bytes) {
    enum { EXAMINED = 1 << 16 };
    size_t n = TTI_MIN(n_bytes, (size_t)EXAMINED), n_nul = 0;
    const char *name = tti_foreign_format(text, n_bytes);
    if (name) return tti_fail(TUTTI_E_DATA, "%s: it is %s; save it as text in UTF-8", path, name);
    for (size_t i = 0; i < n; i++) n_nul += text[i] == '\0';
    if (n_nul == 0 || 4 * n_nul < n) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: %zu of the first %zu bytes are NUL, as in UTF-16; convert it to UTF-8 "
                    "(iconv -f UTF-16LE -t UTF-8)",
                    path, n_nul, n);
}
