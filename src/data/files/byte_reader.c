/* byte_reader.c - a bounded reader for plain and gzipped files and for memory.
 *
 * Raw bytes come from take_raw only, which never returns more than the file had when it was opened.
 * Plain data is copied from there, gzipped data is inflated directly into the caller's memory, so
 * no file can make the reader allocate more than its fixed buffer.  Files are read with pread,
 * never mapped: a file that is truncated while it is read gives an error and not SIGBUS. */
#include "data/files/byte_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/utf8.h"

enum { BUFFER_BYTES = 128 * 1024, MAX_RATIO = 1032 /* deflate's own limit */ };

struct tti_reader {
    char *path;
    int fd;                   /* -1: memory                                     */
    const uint8_t *bytes;     /* of a reader over memory                        */
    uint64_t n_raw, raw;      /* bytes in the file when it was opened, bytes taken */
    bool gzip;                /* or deflated, where part */
    bool part;                /* part of a file; its format is not detected from a header */
    uint32_t crc, wanted_crc; /* part: CRC of the bytes returned so far, and of all of it */
    bool ended;               /* gzip: the end of the last member, with its checksum, was seen */
    uint64_t n_unpacked, max_unpacked; /* gzip: bytes given so far, and the most that may be */
    z_stream z;
    uint8_t *buffer; /* gzip: raw bytes on their way to inflate */
};

static tutti_status fail_irregular(const char *path) {
    return tti_fail(TUTTI_E_DATA, "%s: is not a regular file", path);
}

/* Says why a path could not be opened.  A link whose target is missing is named as such: a folder
 * of git-annex, DVC or Hugging Face looks like this before its files were downloaded. */
static tutti_status fail_to_open(const char *path, int error) {
    char target[1024];
    ssize_t n = error == ENOENT ? readlink(path, target, sizeof target - 1) : -1;
    if (n >= 0) {
        target[n] = '\0';
        return tti_fail(TUTTI_E_DATA, "%s: is a symbolic link to '%s', which does not exist", path,
                        target);
    }
    if (error == ELOOP)
        return tti_fail(TUTTI_E_DATA, "%s: is part of a loop of symbolic links", path);
    if (error == ENXIO) return fail_irregular(path); /* a socket */
    bool missing = error == ENOENT || error == ENOTDIR;
    return tti_fail(missing ? TUTTI_E_DATA : TUTTI_E_IO, "%s: cannot open: %s", path,
                    strerror(error));
}

tutti_status tti_open_regular(const char *path, int *out_fd, uint64_t *out_n_bytes) {
    /* O_NONBLOCK: opening a pipe must not wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return fail_to_open(path, errno);
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return fail_irregular(path);
    }
    *out_fd = fd;
    *out_n_bytes = (uint64_t)info.st_size;
    return TUTTI_OK;
}

/* Copies at most n_bytes raw bytes from the current position; 0 at the end. */
static tutti_status take_raw(tti_reader *r, void *dst, size_t n_bytes, size_t *taken) {
    size_t n = (size_t)TTI_MIN((uint64_t)n_bytes, r->n_raw - r->raw);
    *taken = 0;
    if (n == 0) return TUTTI_OK;
    if (r->fd < 0) {
        memcpy(dst, r->bytes + r->raw, n);
    } else {
        ssize_t got;
        do {
            got = pread(r->fd, dst, n, (off_t)r->raw);
        } while (got < 0 && errno == EINTR);
        if (got < 0) return tti_fail(TUTTI_E_IO, "%s: cannot read: %s", r->path, strerror(errno));
        if (got == 0)
            return tti_fail(TUTTI_E_DATA, "%s: became shorter while it was read", r->path);
        n = (size_t)got;
    }
    r->raw += n;
    *taken = n;
    return TUTTI_OK;
}

/* Looks at the first bytes and prepares inflate; the place stays at the start. */
static tutti_status start(tti_reader *r) {
    uint8_t head[2];
    size_t n;
    if (!r->part) {
        TTI_TRY(take_raw(r, head, 2, &n));
        r->raw = 0;
        r->gzip = n == 2 && head[0] == 0x1F && head[1] == 0x8B;
    }
    if (!r->gzip) return TUTTI_OK;
    r->buffer = malloc(BUFFER_BYTES);
    if (!r->buffer || inflateInit2(&r->z, r->part ? -15 : 15 + 16) != Z_OK) {
        free(r->buffer);
        r->buffer = NULL; /* close ends inflate only if there is a buffer */
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory for decompression", r->path);
    }
    return TUTTI_OK;
}

static tutti_status reader_create(tti_reader init, const char *path, tti_reader **out) {
    tti_reader *r = malloc(sizeof *r);
    char *copy = strdup(path);
    if (!r || !copy) {
        free(r);
        free(copy);
        if (init.fd >= 0) close(init.fd);
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    }
    *r = init;
    r->path = copy;
    r->max_unpacked = TTI_MAX(TTI_MAX_UNPACKED, TTI_MAX_UNPACKED_RATIO * r->n_raw);
    tutti_status st = start(r);
    if (st == TUTTI_OK)
        *out = r;
    else
        tti_reader_close(r);
    return st;
}

tutti_status tti_reader_open(const char *path, tti_reader **out) {
    *out = NULL;
    int fd = -1;
    uint64_t n_bytes = 0;
    TTI_TRY(tti_open_regular(path, &fd, &n_bytes));
    return reader_create((tti_reader){.fd = fd, .n_raw = n_bytes}, path, out);
}

tutti_status tti_reader_open_part(const char *path, const tti_file_part *part, tti_reader **out) {
    *out = NULL;
    int fd = -1;
    uint64_t n_file = 0, end = 0;
    TTI_TRY(tti_open_regular(path, &fd, &n_file));
    if (__builtin_add_overflow(part->offset, part->n_bytes, &end) || end > n_file) {
        close(fd);
        return tti_fail(TUTTI_E_DATA,
                        "%s: truncated: expected %llu bytes at offset %llu, but the file has %llu",
                        path, (unsigned long long)part->n_bytes, (unsigned long long)part->offset,
                        (unsigned long long)n_file);
    }
    return reader_create((tti_reader){.fd = fd,
                                      .n_raw = end,
                                      .raw = part->offset,
                                      .gzip = part->deflated,
                                      .part = true,
                                      .wanted_crc = part->crc32},
                         path, out);
}

tutti_status tti_reader_open_memory(const void *bytes, size_t n_bytes, const char *name,
                                    tti_reader **out) {
    *out = NULL;
    return reader_create((tti_reader){.fd = -1, .bytes = bytes, .n_raw = n_bytes}, name, out);
}

static tutti_status read_plain(tti_reader *r, uint8_t *dst, size_t n_bytes, size_t *got) {
    for (*got = 0; *got < n_bytes;) {
        size_t n;
        TTI_TRY(take_raw(r, dst + *got, n_bytes - *got, &n));
        if (n == 0) break;
        *got += n;
    }
    if (r->part) r->crc = (uint32_t)crc32_z(r->crc, dst, *got);
    return TUTTI_OK;
}

/* Gives inflate at least n_bytes of input, fewer only at the end of the file. */
static tutti_status refill(tti_reader *r, size_t n_bytes) {
    if (r->z.avail_in >= n_bytes) return TUTTI_OK;
    memmove(r->buffer, r->z.next_in ? r->z.next_in : r->buffer, r->z.avail_in);
    r->z.next_in = r->buffer;
    for (size_t n = 1; r->z.avail_in < n_bytes && n > 0; r->z.avail_in += (uInt)n)
        TTI_TRY(take_raw(r, r->buffer + r->z.avail_in, BUFFER_BYTES - r->z.avail_in, &n));
    return TUTTI_OK;
}

/* At the end of a member, continues with the next one (RFC 1952, 2.2).  Zeros between and after
 * members are padding.  Other bytes are refused, although gzip only warns about them: they may be
 * data whose compression is damaged. */
static tutti_status next_member(tti_reader *r) {
    TTI_TRY(refill(r, 1));
    while (r->z.avail_in > 0 && *r->z.next_in == 0) {
        r->z.next_in++;
        r->z.avail_in--;
        TTI_TRY(refill(r, 1));
    }
    TTI_TRY(refill(r, 2));
    bool at_end = r->z.avail_in == 0;
    bool another = r->z.avail_in >= 2 && r->z.next_in[0] == 0x1F && r->z.next_in[1] == 0x8B;
    if (!at_end && !another)
        return tti_fail(TUTTI_E_DATA,
                        "%s: byte %llu: trailing bytes after the gzip data that are "
                        "not a gzip member",
                        r->path, (unsigned long long)(r->raw - r->z.avail_in));
    r->ended = at_end;
    return another && inflateReset(&r->z) != Z_OK
               ? tti_fail(TUTTI_E_NOMEM, "%s: out of memory for decompression", r->path)
               : TUTTI_OK;
}

/* Calls inflate once, with fresh input when the old is consumed. */
static tutti_status inflate_some(tti_reader *r, bool *at_end_of_file) {
    TTI_TRY(refill(r, 1));
    *at_end_of_file = r->z.avail_in == 0;
    if (*at_end_of_file) return TUTTI_OK;
    int code = inflate(&r->z, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
        if (!r->part) return next_member(r);
        r->ended = true;
    } else if (code == Z_MEM_ERROR) {
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory for decompression", r->path);
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
        return tti_fail(TUTTI_E_DATA, "%s: damaged gzip data (%s)", r->path,
                        r->z.msg ? r->z.msg : "inflate failed");
    }
    return TUTTI_OK;
}

static tutti_status fail_too_large(const tti_reader *r) {
    return tti_fail(TUTTI_E_DATA,
                    "%s: unpacks to more than %llu MiB; data.max_unpacked_mb=N allows more",
                    r->path, (unsigned long long)(r->max_unpacked >> 20));
}

static tutti_status read_gzip(tti_reader *r, uint8_t *dst, size_t n_bytes, size_t *got) {
    bool at_end_of_file = false;
    for (*got = 0; *got < n_bytes && !r->ended && !at_end_of_file;) {
        uInt room = (uInt)TTI_MIN(n_bytes - *got, (size_t)1 << 30);
        r->z.next_out = dst + *got;
        r->z.avail_out = room;
        TTI_TRY(inflate_some(r, &at_end_of_file));
        *got += room - r->z.avail_out;
        r->n_unpacked += room - r->z.avail_out;
        if (r->n_unpacked > r->max_unpacked) return fail_too_large(r);
    }
    if (r->part) r->crc = (uint32_t)crc32_z(r->crc, dst, *got);
    return TUTTI_OK;
}

void tti_reader_allow(tti_reader *r, int64_t max_unpacked) {
    if (max_unpacked > 0) r->max_unpacked = (uint64_t)max_unpacked;
}

tutti_status tti_reader_read(tti_reader *r, void *dst, size_t n_bytes, const char *what) {
    size_t got;
    TTI_TRY(r->gzip ? read_gzip(r, dst, n_bytes, &got) : read_plain(r, dst, n_bytes, &got));
    if (got < n_bytes)
        return tti_fail(TUTTI_E_DATA, "%s: truncated in the %s: %zu bytes expected, %zu found",
                        r->path, what, n_bytes, got);
    return TUTTI_OK;
}

static tutti_status check_crc(const tti_reader *r) {
    if (!r->part || r->crc == r->wanted_crc) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA, "%s: damaged: the CRC-32 of a member is %08x instead of %08x",
                    r->path, (unsigned)r->crc, (unsigned)r->wanted_crc);
}

tutti_status tti_reader_finish(tti_reader *r) {
    if (!r->gzip) {
        if (r->raw < r->n_raw)
            return tti_fail(TUTTI_E_DATA, "%s: %llu trailing bytes after the data", r->path,
                            (unsigned long long)(r->n_raw - r->raw));
        return check_crc(r);
    }
    uint8_t extra;
    size_t n;
    TTI_TRY(read_gzip(r, &extra, 1, &n)); /* runs into the end of the stream and its checksum */
    if (n > 0) return tti_fail(TUTTI_E_DATA, "%s: trailing bytes after the data", r->path);
    if (!r->ended)
        return tti_fail(TUTTI_E_DATA, "%s: truncated: the gzip checksum is missing", r->path);
    if (r->z.avail_in > 0 || r->raw < r->n_raw)
        return tti_fail(TUTTI_E_DATA, "%s: trailing bytes after the gzip data", r->path);
    return check_crc(r);
}

tutti_status tti_reader_expect(const tti_reader *r, uint64_t n_bytes) {
    if (!r->gzip && n_bytes > r->n_raw - r->raw)
        return tti_fail(TUTTI_E_DATA,
                        "%s: truncated: %llu bytes expected after the header, %llu found", r->path,
                        (unsigned long long)n_bytes, (unsigned long long)(r->n_raw - r->raw));
    if (r->gzip && n_bytes / MAX_RATIO > r->n_raw)
        return tti_fail(TUTTI_E_DATA,
                        "%s: the header declares %llu bytes, more than %llu gzipped bytes can hold",
                        r->path, (unsigned long long)n_bytes, (unsigned long long)r->n_raw);
    if (r->gzip && n_bytes > r->max_unpacked - r->n_unpacked) return fail_too_large(r);
    return TUTTI_OK;
}

/* Room for one byte more than there is now, up to max_bytes + 1. */
static tutti_status grow(const tti_reader *r, char **text, size_t *capacity, size_t max_bytes) {
    size_t left = r->gzip ? 2 * *capacity + BUFFER_BYTES : (size_t)(r->n_raw - r->raw) + 1;
    size_t wanted = TTI_MIN(left, max_bytes + 1);
    char *more = realloc(*text, wanted + 1);
    if (!more) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory for %zu bytes", r->path, wanted);
    *text = more;
    *capacity = wanted;
    return TUTTI_OK;
}

tutti_status tti_reader_read_all(tti_reader *r, size_t max_bytes, char **out, size_t *n_bytes) {
    TTI_ASSERT(max_bytes < SIZE_MAX / 2);
    char *text = NULL;
    size_t n = 0, capacity = 0, got = 0;
    tutti_status st;
    if (!r->gzip && r->n_raw - r->raw > max_bytes)
        return tti_fail(TUTTI_E_DATA, "%s: has %llu bytes, at most %zu are allowed", r->path,
                        (unsigned long long)(r->n_raw - r->raw), max_bytes);
    do { /* one byte more than there is: reading stops short at the end only */
        TTI_TRY_GOTO(grow(r, &text, &capacity, max_bytes), cleanup);
        uint8_t *to = (uint8_t *)text + n;
        TTI_TRY_GOTO(
            r->gzip ? read_gzip(r, to, capacity - n, &got) : read_plain(r, to, capacity - n, &got),
            cleanup);
        n += got;
    } while (n == capacity && n <= max_bytes);
    st = n > max_bytes ? tti_fail(TUTTI_E_DATA, "%s: has more than %zu bytes when unpacked",
                                  r->path, max_bytes)
                       : tti_reader_finish(r);
cleanup:
    if (st == TUTTI_OK) {
        text[n] = '\0';
        *out = text;
        *n_bytes = n;
    } else {
        free(text);
    }
    return st;
}

tutti_status tti_reader_read_text(tti_reader *r, size_t max_bytes, char **out, size_t *n_bytes) {
    char *text;
    size_t n;
    TTI_TRY(tti_reader_read_all(r, max_bytes, &text, &n));
    const char *mark = tti_utf8_other_mark(text, n);
    if (mark) {
        free(text);
        return tti_fail(TUTTI_E_DATA, "%s: is %s; convert it to UTF-8 (iconv -f %s -t UTF-8)",
                        r->path, mark, mark);
    }
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        n -= 3;
        memmove(text, text + 3, n + 1); /* with the NUL */
    }
    *out = text;
    *n_bytes = n;
    return TUTTI_OK;
}

tutti_status tti_read_file(const char *path, size_t max_bytes, char **out, size_t *n_bytes) {
    tti_reader *reader;
    TTI_TRY(tti_reader_open(path, &reader));
    tutti_status st = tti_reader_read_all(reader, max_bytes, out, n_bytes);
    tti_reader_close(reader);
    return st;
}

tutti_status tti_pread_all(int fd, const char *path, void *dst, size_t n_bytes, uint64_t offset) {
    for (size_t done = 0; done < n_bytes;) {
        ssize_t n = TTI_FAULT("data.read")
                        ? -1
                        : pread(fd, (char *)dst + done, n_bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tti_fail(TUTTI_E_IO, "%s: cannot read: %s", path, strerror(errno));
        if (n == 0)
            return tti_fail(TUTTI_E_DATA, "%s: truncated: expected %zu bytes at offset %llu", path,
                            n_bytes, (unsigned long long)offset);
        done += (size_t)n;
    }
    return TUTTI_OK;
}

const char *tti_reader_path(const tti_reader *r) { return r->path; }

bool tti_reader_is_gzip(const tti_reader *r) { return r->gzip; }

/* Reads n_bytes for their checksum only. */
static tutti_status pass_over(tti_reader *r, uint64_t n_bytes) {
    uint8_t *buffer = malloc(BUFFER_BYTES);
    if (!buffer) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", r->path);
    tutti_status st = TUTTI_OK;
    while (st == TUTTI_OK && n_bytes > 0) {
        size_t n = (size_t)TTI_MIN(n_bytes, (uint64_t)BUFFER_BYTES);
        st = tti_reader_read(r, buffer, n, "data");
        n_bytes -= n;
    }
    free(buffer);
    return st;
}

tutti_status tti_reader_release_fd(tti_reader *r, uint64_t n_bytes, int *out) {
    TTI_ASSERT(!r->gzip && r->fd >= 0);
    TTI_TRY(tti_reader_expect(r, n_bytes));
    TTI_TRY(r->part ? pass_over(r, n_bytes) : TUTTI_OK);
    if (!r->part) r->raw += n_bytes;
    TTI_TRY(tti_reader_finish(r));
    *out = r->fd;
    r->fd = -1;
    return TUTTI_OK;
}

void tti_reader_close(tti_reader *r) {
    if (!r) return;
    if (r->buffer) inflateEnd(&r->z);
    free(r->buffer);
    if (r->fd >= 0) close(r->fd);
    free(r->path);
    free(r);
}
