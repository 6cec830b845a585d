/* safetensors.h - files of named tensors, readable by others (huggingface.co/docs/safetensors).
 *
 *     u64 little-endian N    bytes of the header
 *     N bytes                JSON: {"__metadata__":{text:text}, "NAME":{"dtype":"F32",
 *                            "shape":[2,3],"data_offsets":[BEGIN,END]},
 *                            ...}, padded with spaces
 *     the rest               tensors, row-major, little-endian, without gaps, at BEGIN .. END
 *
 * The reader accepts what the reference reader accepts, with narrower limits: a header of at most
 * 16 MiB, names of at most 512 bytes without control characters, at most 8 dimensions.  Tensors of
 * dtypes that Tutti does not have (BOOL, F8_E4M3, ...) are listed, so that a file with a mask or a
 * quantized tensor can be opened; reading their elements is refused.  It uses pread only, so a file
 * that shrinks while it is read gives an error and not SIGBUS.
 *
 * The format has no checksums: writer and reader compute CRC-32C while they copy, and a manifest
 * stores it.
 *
 * Errors:  TUTTI_E_CHECKPOINT for a file that is missing, damaged or cannot be read, TUTTI_E_IO for
 *          one that cannot be written, both with the path.
 * Threads: an open file may be read by several threads at once. */
#ifndef TTI_CKPT_SAFETENSORS_H
#define TTI_CKPT_SAFETENSORS_H

#include "base/arena.h"
#include "base/files/read_ahead.h"
#include "base/str.h"
#include "tutti/types.h"

enum { TTI_SAFETENSORS_MAX_HEADER = 16 << 20, TTI_SAFETENSORS_MAX_TENSORS = 1 << 20 };

/* A tensor of the caller: host memory, row-major.  name and data are borrowed. */
typedef struct tti_ckpt_tensor {
    const char *name;
    tutti_type type;
    void *data; /* read when saving, written when loading */
} tti_ckpt_tensor;

/* Access to tensors that are not contiguous in memory.  Their data pointers are handles of the
 * caller and are never dereferenced here. */
typedef struct tti_ckpt_access {
    /* All bytes of a tensor, valid until the next call. */
    tutti_status (*get)(void *user, const tti_ckpt_tensor *tensor, const void **bytes);
    /* Takes n_bytes of a tensor from byte first on, a multiple of TTI_CKPT_PART_BYTES; the parts
     * come in order. */
    tutti_status (*put)(void *user, const tti_ckpt_tensor *tensor, uint64_t first, size_t n_bytes,
                        const void *bytes);
    void *user;
    const tti_readers *readers; /* threads that read for put; NULL: the calling one */
} tti_ckpt_access;

#define TTI_CKPT_PART_BYTES ((size_t)TTI_PART_ELEMS * sizeof(float))

/* A tensor of a file. */
typedef struct tti_safetensors_entry {
    const char *name;         /* in the arena of the file */
    tutti_type type;          /* dtype U8 if foreign is set */
    const char *foreign;      /* the dtype's name if Tutti does not have it, else NULL */
    uint64_t offset, n_bytes; /* of its bytes, from the start of the file */
    uint32_t crc;             /* of its bytes; only the writer sets it */
} tti_safetensors_entry;

/* A second name of a tensor, from "__metadata__": safetensors.torch.save_model stores tied tensors
 * once and writes {"REMOVED NAME":"STORED NAME"} there. */
typedef struct tti_safetensors_alias {
    const char *name, *stored; /* in the arena of the file */
} tti_safetensors_alias;

typedef struct tti_safetensors {
    tti_arena arena;
    char *path;
    int fd;                           /* -1: none, as after writing */
    uint64_t n_bytes, n_header_bytes; /* of the file; of the 8 bytes and the header */
    uint32_t crc;                     /* of the whole file; only the writer sets it */
    uint32_t header_crc;
    size_t n_entries;
    tti_safetensors_entry *entries; /* in the order of their bytes */
    size_t n_aliases;               /* texts of "__metadata__"; stored may name no tensor */
    tti_safetensors_alias *aliases;
} tti_safetensors;

/* Writes a new file at path, atomically, with {"format":"pt"} as metadata.  Its bytes are durable
 * on return, its name after tti_dir_sync of the folder.  On success *out describes the written file
 * (close it with tti_safetensors_close); on failure it is NULL. */
TUTTI_NODISCARD tutti_status tti_safetensors_write(const char *path, const tti_ckpt_tensor *tensors,
                                                   size_t n_tensors, tti_safetensors **out);

/* The same for tensors that are had by access->get, called once for each. */
TUTTI_NODISCARD tutti_status tti_safetensors_write_by(const char *path,
                                                      const tti_ckpt_tensor *tensors,
                                                      size_t n_tensors,
                                                      const tti_ckpt_access *access,
                                                      tti_safetensors **out);

/* Opens a file and checks its header.  On success *out is owned by the caller; on failure NULL. */
TUTTI_NODISCARD tutti_status tti_safetensors_open(const char *path, tti_safetensors **out);

/* The same for n_bytes at head: the beginning of a file of n_file_bytes, at least its header. */
TUTTI_NODISCARD tutti_status tti_safetensors_parse(const char *path, const void *head,
                                                   size_t n_bytes, uint64_t n_file_bytes,
                                                   tti_safetensors **out);

/* Reads the bytes of an entry into dst, entry->n_bytes; NULL: computes the checksum only. */
TUTTI_NODISCARD tutti_status tti_safetensors_read(const tti_safetensors *file,
                                                  const tti_safetensors_entry *entry, void *dst,
                                                  uint32_t *crc);

/* NULL is a no-op. */
void tti_safetensors_close(tti_safetensors *file);

/* "F32 [32,1,3,3]" added to str. */
void tti_safetensors_type(tti_str *str, const tutti_type *type);

/* The 8 bytes and the header of a file with these entries, in this order; offset is not used. */
void tti_safetensors_header(const tti_safetensors_entry *entries, size_t n_entries, tti_str *out);

/* Opens a regular file for reading, no link and no device; *n_bytes is its size. */
TUTTI_NODISCARD tutti_status tti_ckpt_open_file(const char *path, int *fd, uint64_t *n_bytes);

/* Reads exactly n_bytes at offset. */
TUTTI_NODISCARD tutti_status tti_ckpt_pread(const char *path, int fd, void *dst, size_t n_bytes,
                                            uint64_t offset);

#endif /* TTI_CKPT_SAFETENSORS_H */
