/* manifest.h - manifest.json: the contents of a checkpoint with their checksums.
 *
 *     {"manifest_crc32c":"0123abcd",
 *     "format": "tutti-checkpoint", "version": 1, "step": 1000, ...
 *
 * The first line has a fixed length; its checksum covers all bytes after it, so every changed bit
 * of the manifest is found. */
#ifndef TTI_CKPT_MANIFEST_H
#define TTI_CKPT_MANIFEST_H

#include "ckpt/ckpt.h"

#define TTI_MANIFEST_NAME "manifest.json"

enum { TTI_MANIFEST_VERSION = 1, TTI_MANIFEST_MAX_BYTES = 64 << 20, TTI_MANIFEST_MAX_TEXTS = 64 };

/* The description of one safetensors file.  The offset of an entry is not in the manifest: 0. */
typedef struct tti_manifest_file {
    uint64_t n_bytes, n_header_bytes;
    uint32_t crc, header_crc; /* of the whole file, of its header */
    size_t n_entries;
    tti_safetensors_entry *entries; /* in the order of the file */
} tti_manifest_file;

typedef struct tti_manifest {
    tti_arena arena; /* owns the parsed texts; empty for a manifest that will be printed */
    tti_ckpt_meta meta;
    tti_ckpt_text *texts;
    size_t n_texts;
    tti_manifest_file files[TTI_CKPT_N_FILES];
} tti_manifest;

/* "model.safetensors", "optimizer.safetensors" */
const char *tti_ckpt_file_name(tti_ckpt_file which);

/* Prints the whole file, including the first line with the checksum (base/json_crc.h). */
tutti_status tti_manifest_print(const tti_manifest *manifest, tti_str *out);

/* Checks the first line and reads the rest.  On success free *out; on failure it is empty. */
tutti_status tti_manifest_parse(const char *text, size_t n_bytes, tti_manifest *out);

/* Reads the object without checking its checksum. */
tutti_status tti_manifest_parse_body(const char *json, size_t n_bytes, tti_manifest *out);

void tti_manifest_free(tti_manifest *manifest);

#endif /* TTI_CKPT_MANIFEST_H */
