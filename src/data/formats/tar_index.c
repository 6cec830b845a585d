/* tar_index.c - reads the headers of a tar archive and groups its members into samples.
 *
 * Supports ustar, GNU long names and PAX headers (path and size), as written by GNU tar, Python's
 * tarfile and libarchive.  A header is 512 bytes and the size says where the next one begins, so an
 * archive of gigabytes is indexed by small reads, and every number is checked against the size of
 * the archive before it is used.  No name is ever used as a path. */
#include "data/formats/tar_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/philox.h"
#include "data/files/file_names.h"

enum {
    BLOCK = 512,
    MAX_NAME = 512,
    MAX_EXTRA = 1 << 16, /* of a PAX or long-name member */
    MAX_PICTURE = 1 << 28,
    MAX_LABEL_BYTES = 32
};

typedef struct member {
    char name[MAX_NAME + 1];
    uint64_t header, offset, n_bytes;
    char type;
} member;

/* Extension records before a header that modify it. */
typedef struct extra {
    char name[MAX_NAME + 1]; /* "": none */
    bool has_size;
    uint64_t n_bytes;
} extra;

typedef struct group {
    char key[MAX_NAME + 1]; /* "": none open */
    tti_tar_sample sample;
    bool has_image, has_label;
} group;

typedef struct parser {
    const tti_tar_source *source;
    tti_tar_index *index;
    int shard;
    uint64_t at;
    extra extra;
    group group;
} parser;

/* ---- sources ---- */

static tutti_status read_fd(const tti_tar_source *s, uint64_t offset, void *dst, size_t n_bytes) {
    return tti_pread_all(s->fd, s->name, dst, n_bytes, offset);
}

static tutti_status read_memory(const tti_tar_source *s, uint64_t offset, void *dst,
                                size_t n_bytes) {
    TTI_ASSERT(offset <= s->n_bytes && n_bytes <= s->n_bytes - offset);
    memcpy(dst, s->bytes + offset, n_bytes);
    return TUTTI_OK;
}

tti_tar_source tti_tar_from_fd(int fd, const char *name, uint64_t n_bytes) {
    return (tti_tar_source){.read = read_fd, .name = name, .n_bytes = n_bytes, .fd = fd};
}

tti_tar_source tti_tar_from_memory(const void *bytes, const char *name, uint64_t n_bytes) {
    return (tti_tar_source){.read = read_memory, .name = name, .n_bytes = n_bytes, .bytes = bytes};
}

/* ---- one header ---- */

static tutti_status fail_at(const parser *p, uint64_t at, const char *name, const char *why) {
    char shown[128];
    size_t n = 0;
    for (; name[n] && n + 1 < sizeof shown; n++)
        shown[n] = name[n] >= 32 && name[n] < 127 ? name[n] : '?';
    shown[n] = '\0';
    return tti_fail(TUTTI_E_DATA, "%s: byte %llu%s%s%s: %s", p->source->name,
                    (unsigned long long)at, *shown ? ", member '" : "", shown, *shown ? "'" : "",
                    why);
}

/* Octal, blanks or NUL around it; or base 256, marked by the top bit.  False if it is neither. */
static bool read_number(const uint8_t *field, size_t n, uint64_t *out) {
    uint64_t x = 0;
    if (field[0] == 0x80) {
        for (size_t i = 1; i < n; i++) {
            if (x >> 40) return false;
            x = x << 8 | field[i];
        }
        *out = x;
        return x <= UINT64_C(1) << 40;
    }
    size_t i = 0, n_digits = 0;
    while (i < n && field[i] == ' ') i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++, n_digits++)
        x = x << 3 | (uint64_t)(field[i] - '0');
    for (; i < n; i++)
        if (field[i] != ' ' && field[i] != '\0') return false;
    *out = x;
    return n_digits > 0;
}

static bool checksum_holds(const uint8_t block[BLOCK]) {
    uint64_t wanted, sum = 0;
    for (int i = 0; i < BLOCK; i++) sum += i >= 148 && i < 156 ? ' ' : block[i];
    return read_number(block + 148, 8, &wanted) && sum == wanted;
}

static size_t add_field(char *out, size_t at, const uint8_t *field, size_t n) {
    for (size_t i = 0; i < n && field[i]; i++) out[at++] = (char)field[i];
    out[at] = '\0';
    return at;
}

/* At most 155 + 1 + 100 bytes. */
static void read_name(const uint8_t block[BLOCK], char out[MAX_NAME + 1]) {
    size_t at = 0;
    bool ustar = memcmp(block + 257, "ustar", 6) == 0; /* GNU's own has no prefix there */
    if (ustar && block[345]) {
        at = add_field(out, at, block + 345, 155);
        out[at++] = '/';
    }
    add_field(out, at, block, 100);
}

static tutti_status check_name(const parser *p, const member *m) {
    if (!m->name[0]) return fail_at(p, m->header, "", "a member without a name");
    if (m->name[0] == '/') return fail_at(p, m->header, m->name, "an absolute name");
    for (const char *part = m->name; part; part = strchr(part, '/')) {
        if (*part == '/') part++;
        if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || !part[2]))
            return fail_at(p, m->header, m->name, "a name with '..'");
    }
    return TUTTI_OK;
}

/* Header, with what stood before it, at p->at. */
static tutti_status read_member(parser *p, const uint8_t block[BLOCK], member *m) {
    m->header = p->at;
    m->offset = p->at + BLOCK;
    m->type = (char)block[156];
    read_name(block, m->name);
    if (!checksum_holds(block))
        return fail_at(p, m->header, "",
                       "the checksum of the header is wrong: damaged, or not a tar archive");
    if (!read_number(block + 124, 12, &m->n_bytes))
        return fail_at(p, m->header, m->name, "the size is not a number");
    bool is_extra = m->type == 'x' || m->type == 'L' || m->type == 'g';
    if (!is_extra && p->extra.name[0]) memcpy(m->name, p->extra.name, sizeof m->name);
    if (!is_extra && p->extra.has_size) m->n_bytes = p->extra.n_bytes;
    if (m->n_bytes > p->source->n_bytes - m->offset)
        return fail_at(p, m->header, m->name, "truncated: the member is longer than the archive");
    return is_extra ? TUTTI_OK : check_name(p, m);
}

/* ---- long names and PAX ---- */

/* Text of n bytes as the name of the next member. */
static bool take_name(parser *p, const char *text, size_t n) {
    if (n > 0 && text[n - 1] == '\0') n--;
    if (n == 0 || n > MAX_NAME || memchr(text, '\0', n)) return false;
    memcpy(p->extra.name, text, n);
    p->extra.name[n] = '\0';
    return true;
}

static bool take_decimal(const char *text, size_t n, uint64_t *out) {
    uint64_t x = 0;
    if (n == 0 || n > 13) return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        x = x * 10 + (uint64_t)(text[i] - '0');
    }
    *out = x;
    return x <= UINT64_C(1) << 40;
}

static bool is_key(const char *record, size_t n, const char *key) {
    size_t m = strlen(key);
    return n > m && memcmp(record, key, m) == 0;
}

/* Handles one "key=value" of n bytes.  False for a record that must not be ignored. */
static bool take_record(parser *p, const char *record, size_t n) {
    if (is_key(record, n, "path=")) return take_name(p, record + 5, n - 5);
    if (is_key(record, n, "size=")) {
        p->extra.has_size = true;
        return take_decimal(record + 5, n - 5, &p->extra.n_bytes);
    }
    return !is_key(record, n, "GNU.sparse.") && !is_key(record, n, "linkpath=");
}

/* Lines of "LENGTH key=value\n", LENGTH counting all of it. */
static bool take_records(parser *p, const char *text, size_t n) {
    while (n > 0) {
        size_t digits = 0;
        uint64_t length;
        while (digits < n && digits < 8 && text[digits] >= '0' && text[digits] <= '9') digits++;
        if (digits == n || text[digits] != ' ' || !take_decimal(text, digits, &length))
            return false;
        if (length > n || length < digits + 3 || text[length - 1] != '\n') return false;
        if (!take_record(p, text + digits + 1, (size_t)length - digits - 2)) return false;
        text += length;
        n -= (size_t)length;
    }
    return true;
}

static tutti_status read_extra(parser *p, const member *m) {
    char *text;
    if (m->n_bytes == 0 || m->n_bytes > MAX_EXTRA)
        return fail_at(p, m->header, m->name, "a name or PAX header of this size is refused");
    if (!(text = malloc((size_t)m->n_bytes)))
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", p->source->name);
    tutti_status st = p->source->read(p->source, m->offset, text, (size_t)m->n_bytes);
    if (st == TUTTI_OK) {
        bool good = m->type == 'L'   ? take_name(p, text, (size_t)m->n_bytes)
                    : m->type == 'x' ? take_records(p, text, (size_t)m->n_bytes)
                                     : true; /* global: nothing of it is used */
        if (!good) st = fail_at(p, m->header, m->name, "a damaged or refused name or PAX header");
    }
    free(text);
    return st;
}

/* ---- samples ---- */

static tutti_status reserve(tti_tar_index *index) {
    if (index->n < index->capacity) return TUTTI_OK;
    int64_t capacity = TTI_MAX(256, 2 * index->capacity);
    tti_tar_sample *samples = realloc(index->samples, (size_t)capacity * sizeof *samples);
    if (!samples) return tti_fail(TUTTI_E_NOMEM, "tar: out of memory for the index");
    index->samples = samples;
    index->capacity = capacity;
    return TUTTI_OK;
}

static tutti_status close_group(parser *p) {
    group *g = &p->group;
    if (!g->key[0]) return TUTTI_OK;
    if (g->has_image != g->has_label)
        return fail_at(p, p->at, g->key,
                       g->has_label ? "the previous sample has no image (jpg, jpeg, png)"
                                    : "the previous sample has no label (cls)");
    if (g->has_image) {
        TTI_TRY(reserve(p->index));
        g->sample.shard = p->shard;
        g->sample.key = tti_hash_name(g->key);
        p->index->samples[p->index->n++] = g->sample;
    }
    *g = (group){0};
    return TUTTI_OK;
}

static tutti_status take_label(parser *p, const member *m) {
    char text[MAX_LABEL_BYTES];
    uint64_t label = 0;
    size_t n = (size_t)TTI_MIN(m->n_bytes, (uint64_t)MAX_LABEL_BYTES);
    TTI_TRY(p->source->read(p->source, m->offset, text, n));
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' ')) n--;
    bool good = m->n_bytes < MAX_LABEL_BYTES && take_decimal(text, n, &label);
    if (!good || label > INT32_MAX)
        return fail_at(p, m->header, m->name,
                       "the label is not a whole number from 0 to 2147483647");
    if (p->group.has_label) return fail_at(p, m->header, m->name, "a second label of one sample");
    p->group.has_label = true;
    p->group.sample.label = (int32_t)label;
    return TUTTI_OK;
}

static tutti_status take_image(parser *p, const member *m) {
    if (p->group.has_image) return fail_at(p, m->header, m->name, "a second image of one sample");
    if (m->n_bytes == 0 || m->n_bytes > MAX_PICTURE)
        return fail_at(p, m->header, m->name, "an image that is empty or too large");
    p->group.has_image = true;
    p->group.sample.offset = m->offset;
    p->group.sample.n_bytes = (uint32_t)m->n_bytes;
    return TUTTI_OK;
}

/* Whether a part of the name is one that file_names.h ignores; "./a" is the folder itself. */
static bool is_ignored(const char *name) {
    char part[MAX_NAME + 1];
    for (const char *at = name; *at; at += strspn(at, "/")) {
        size_t n = strcspn(at, "/");
        memcpy(part, at, n);
        part[n] = '\0';
        if (n > 0 && strcmp(part, ".") != 0 && tti_is_ignored_name(part)) return true;
        at += n;
    }
    return false;
}

static tutti_status take_file(parser *p, const member *m) {
    if (is_ignored(m->name)) {
        p->index->n_ignored++;
        return TUTTI_OK;
    }
    const char *slash = strrchr(m->name, '/'), *file = slash ? slash + 1 : m->name;
    const char *dot = strchr(file, '.');
    size_t n_key = dot ? (size_t)(dot - m->name) : strlen(m->name);
    bool same = strlen(p->group.key) == n_key && memcmp(p->group.key, m->name, n_key) == 0;
    if (!same) {
        TTI_TRY(close_group(p));
        memcpy(p->group.key, m->name, n_key);
        p->group.key[n_key] = '\0';
    }
    if (!dot) return TUTTI_OK;
    const char *kind = dot + 1;
    if (strcasecmp(kind, "cls") == 0) return take_label(p, m);
    bool image = strcasecmp(kind, "jpg") == 0 || strcasecmp(kind, "jpeg") == 0 ||
                 strcasecmp(kind, "png") == 0;
    return image ? take_image(p, m) : TUTTI_OK;
}

static tutti_status take_member(parser *p, const member *m) {
    bool is_extra = m->type == 'x' || m->type == 'L' || m->type == 'g';
    if (is_extra) return read_extra(p, m);
    p->extra = (extra){0};
    bool is_folder = m->type == '5' || m->name[strlen(m->name) - 1] == '/';
    if (is_folder && m->n_bytes == 0) return TUTTI_OK;
    if (m->type != '0' && m->type != '\0')
        return fail_at(p, m->header, m->name,
                       "a link, device, sparse file or other special member is refused");
    return take_file(p, m);
}

/* ---- the archive ---- */

static bool is_zero(const uint8_t block[BLOCK]) {
    for (int i = 0; i < BLOCK; i++)
        if (block[i]) return false;
    return true;
}

/* The end mark, two blocks of zeros, and nothing else after it. */
static tutti_status check_end(const parser *p) {
    uint8_t block[BLOCK];
    uint64_t n = p->source->n_bytes;
    if (n - p->at < 2 * BLOCK || n % BLOCK != 0)
        return fail_at(p, p->at, "", "truncated: the end mark is cut off");
    for (uint64_t at = p->at; at < n; at += BLOCK) {
        TTI_TRY(p->source->read(p->source, at, block, BLOCK));
        if (!is_zero(block)) return fail_at(p, at, "", "bytes after the end of the archive");
    }
    return TUTTI_OK;
}

static tutti_status read_members(parser *p) {
    uint64_t n = p->source->n_bytes;
    for (;;) {
        uint8_t block[BLOCK];
        if (n - p->at < BLOCK)
            return fail_at(p, p->at, "", "truncated: the archive ends without its end mark");
        TTI_TRY(p->source->read(p->source, p->at, block, BLOCK));
        if (p->at == 0 && block[0] == 0x1F && block[1] == 0x8B)
            return fail_at(p, 0, "",
                           "the archive is compressed, but samples are read in random order; "
                           "decompress it with gunzip");
        if (is_zero(block)) break;
        member m;
        TTI_TRY(read_member(p, block, &m));
        TTI_TRY(take_member(p, &m));
        uint64_t padded = (m.n_bytes + BLOCK - 1) / BLOCK * BLOCK;
        if (padded > n - m.offset)
            return fail_at(p, m.header, m.name, "truncated: the member's last block is cut off");
        p->at = m.offset + padded;
    }
    TTI_TRY(close_group(p));
    return check_end(p);
}

tutti_status tti_tar_index_add(tti_tar_index *index, const tti_tar_source *source, int shard) {
    parser p = {.source = source, .index = index, .shard = shard};
    int64_t n = index->n, n_ignored = index->n_ignored;
    tutti_status st = read_members(&p);
    if (st != TUTTI_OK) index->n = n, index->n_ignored = n_ignored;
    return st;
}

void tti_tar_member_name(const tti_tar_source *source, uint64_t offset, char *out, size_t n_bytes) {
    uint8_t block[BLOCK];
    char name[MAX_NAME + 1] = "?";
    if (offset >= BLOCK && source->read(source, offset - BLOCK, block, BLOCK) == TUTTI_OK)
        read_name(block, name);
    for (char *c = name; *c; c++)
        if (*c < 32 || *c == 127) *c = '?';
    snprintf(out, n_bytes, "%s", name);
}

void tti_tar_index_free(tti_tar_index *index) {
    free(index->samples);
    *index = (tti_tar_index){0};
}
