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
