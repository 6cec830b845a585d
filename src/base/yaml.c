/* yaml.c - the only file that sees libyaml.
 *
 * Converts libyaml's events to a tree.  The library accepts duplicate keys, aliases and any number
 * of documents; unwanted features are refused here, as soon as their event comes.  Duplicate keys
 * are left to the reader of the tree, which knows all spellings of a key.  Recursion is bounded by
 * TTI_YAML_MAX_DEPTH, memory by TTI_YAML_MAX_NODES. */
#include "base/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#include "base/problem.h"
#include "base/utf8.h"

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; owned */
    const char *text;   /* the whole input */
    size_t n_bytes;
    const char *source;
    tti_arena *arena;
    int n_nodes, depth;
} reader;

static tutti_status fail_at(const reader *r, int line, int column, const char *what) {
    char source[TTI_CLIP];
    return tti_fail(TUTTI_E_CONFIG, "%s:%d:%d: error: %s", tti_clip(source, r->source), line,
                    column, what);
}

static tutti_status fail_event(const reader *r, const char *what) {
    const yaml_mark_t *mark = &r->event.start_mark;
    return fail_at(r, (int)mark->line + 1, (int)mark->column + 1, what);
}

/* libyaml reports only the offset of bytes that it cannot read. */
static tutti_status fail_offset(const reader *r, size_t offset, const char *what) {
    int line = 1, column = 1;
    for (size_t i = 0; i < offset && i < r->n_bytes; i++) {
        bool continues = ((unsigned char)r->text[i] & 0xC0) == 0x80;
        if (r->text[i] == '\n') {
            line++;
            column = 1;
        } else if (!continues) {
            column++;
        }
    }
    return fail_at(r, line, column, what);
}

/* The byte at a mark, whose index counts characters and not bytes. */
static char char_at(const reader *r, const yaml_mark_t *mark) {
    size_t at = 0, n_chars = 0;
    while (at < r->n_bytes && n_chars < mark->index) {
        at++;
        while (at < r->n_bytes && ((unsigned char)r->text[at] & 0xC0) == 0x80) at++;
        n_chars++;
    }
    return at < r->n_bytes ? r->text[at] : '\0';
}

static tutti_status fail_parser(const reader *r) {
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) return tti_fail(TUTTI_E_NOMEM, "yaml: out of memory");
    const char *problem = p->problem ? p->problem : "not YAML";
    if (p->error == YAML_READER_ERROR) return fail_offset(r, p->problem_offset, problem);
    char what[512];
    int line = (int)p->problem_mark.line + 1, column = (int)p->problem_mark.column + 1;
    const char *hint =
        char_at(r, &p->problem_mark) == '\t' ? "; this is a tab: indent with spaces" : "";
    if (p->context)
        snprintf(what, sizeof what, "%s (%s at %d:%d)%s", problem, p->context,
                 (int)p->context_mark.line + 1, (int)p->context_mark.column + 1, hint);
    else
        snprintf(what, sizeof what, "%s%s", problem, hint);
    return fail_at(r, line, column, what);
}

/* Frees the current event and reads the next. */
static tutti_status next_event(reader *r) {
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) return fail_parser(r);
    return TUTTI_OK;
}

static tutti_status new_node(reader *r, tti_yaml_kind kind, tti_yaml **out) {
    if (++r->n_nodes > TTI_YAML_MAX_NODES) return fail_event(r, "too many values in one file");
    tti_yaml *node = tti_arena_alloc(r->arena, sizeof *node);
    if (!node) return tti_fail(TUTTI_E_NOMEM, "yaml: out of memory");
    node->kind = kind;
    node->line = (int)r->event.start_mark.line + 1;
    node->column = (int)r->event.start_mark.column + 1;
    *out = node;
    return TUTTI_OK;
}

static tutti_status refuse(const reader *r, const yaml_char_t *anchor, const yaml_char_t *tag) {
    if (anchor) return fail_event(r, "anchors (&name) are not allowed");
    if (tag) return fail_event(r, "tags (!name) are not allowed");
    return TUTTI_OK;
}

static tutti_status read_scalar(reader *r, tti_yaml **out) {
    tti_yaml *node = NULL;
    const char *text = (const char *)r->event.data.scalar.value;
    size_t n_bytes = r->event.data.scalar.length;
    TTI_TRY(refuse(r, r->event.data.scalar.anchor, r->event.data.scalar.tag));
    if (memchr(text, 0, n_bytes)) return fail_event(r, "a NUL character is not allowed");
    TTI_TRY(new_node(r, TTI_YAML_SCALAR, &node));
    node->plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    node->text = tti_arena_strdup(r->arena, text);
    if (!node->text) return tti_fail(TUTTI_E_NOMEM, "yaml: out of memory");
    *out = node;
    return TUTTI_OK;
}

static tutti_status read_node(reader *r, tti_yaml **out);

/* The key of the current event; leaves the first event of its value. */
static tutti_status read_key(reader *r, tti_yaml **out) {
    if (r->event.type == YAML_ALIAS_EVENT) return fail_event(r, "aliases (*name) are not allowed");
    if (r->event.type != YAML_SCALAR_EVENT) return fail_event(r, "a key must be plain text");
    TTI_TRY(read_scalar(r, out));
    if ((*out)->plain && !strcmp((*out)->text, "<<"))
        return fail_event(r, "merge keys (<<) are not allowed");
    return next_event(r);
}

/* The children of a sequence or mapping, up to its end event. */
static tutti_status read_children(reader *r, tti_yaml *parent) {
    bool mapping = parent->kind == TTI_YAML_MAPPING;
    yaml_event_type_t end = mapping ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    tti_yaml **tail = &parent->first;
    TTI_TRY(next_event(r));
    while (r->event.type != end) {
        tti_yaml *key = NULL;
        if (mapping) TTI_TRY(read_key(r, &key));
        TTI_TRY(read_node(r, tail));
        (*tail)->key = key;
        tail = &(*tail)->next;
        TTI_TRY(next_event(r));
    }
    return TUTTI_OK;
}

static tutti_status read_collection(reader *r, tti_yaml_kind kind, tti_yaml **out) {
    tti_yaml *node = NULL;
    if (++r->depth > TTI_YAML_MAX_DEPTH) return fail_event(r, "nested too deeply (64 levels)");
    TTI_TRY(new_node(r, kind, &node));
    TTI_TRY(read_children(r, node));
    r->depth--;
    *out = node;
    return TUTTI_OK;
}

/* The value of the current event; leaves its last event. */
static tutti_status read_node(reader *r, tti_yaml **out) {
    switch (r->event.type) {
        case YAML_SCALAR_EVENT:
            return read_scalar(r, out);
        case YAML_SEQUENCE_START_EVENT:
            TTI_TRY(
                refuse(r, r->event.data.sequence_start.anchor, r->event.data.sequence_start.tag));
            return read_collection(r, TTI_YAML_SEQUENCE, out);
        case YAML_MAPPING_START_EVENT:
            TTI_TRY(refuse(r, r->event.data.mapping_start.anchor, r->event.data.mapping_start.tag));
            return read_collection(r, TTI_YAML_MAPPING, out);
        case YAML_ALIAS_EVENT:
            return fail_event(r, "aliases (*name) are not allowed");
        default:
            return fail_event(r, "unexpected end of the text");
    }
}

static tutti_status read_document(reader *r, tti_yaml **out) {
    TTI_TRY(next_event(r)); /* start of the stream */
    TTI_TRY(next_event(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return fail_at(r, 1, 1, "the file is empty");
    TTI_TRY(next_event(r));
    TTI_TRY(read_node(r, out));
    TTI_TRY(next_event(r)); /* end of the document */
    TTI_TRY(next_event(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return TUTTI_OK;
    return fail_event(r, "a second document is not allowed");
}

tutti_status tti_yaml_parse(const char *text, size_t n_bytes, const char *source, tti_arena *arena,
                            const tti_yaml **out) {
    reader r = {.text = text, .n_bytes = n_bytes, .source = source, .arena = arena};
    tti_yaml *root = NULL;
    size_t n_valid = tti_utf8_check(text, n_bytes);
    if (n_bytes > TTI_YAML_MAX_BYTES) return fail_at(&r, 1, 1, "larger than 1 MiB");
    if (n_valid < n_bytes) return fail_offset(&r, n_valid, "not UTF-8 text");
    if (!yaml_parser_initialize(&r.parser)) return tti_fail(TUTTI_E_NOMEM, "yaml: out of memory");
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING); /* no guess from a byte order mark */
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n_bytes);
    tutti_status st = read_document(&r, &root);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    if (st == TUTTI_OK) *out = root;
    return st;
}

static tutti_status fail_file(const char *path, const char *what) {
    char clipped[TTI_CLIP];
    return tti_fail(TUTTI_E_CONFIG, "%s: error: %s", tti_clip(clipped, path), what);
}

/* Reads until the end or the limit; a file may grow while it is read. */
static tutti_status read_all(int fd, const char *path, char *text, size_t *n_bytes) {
    size_t n = 0;
    while (n <= TTI_YAML_MAX_BYTES) {
        ssize_t got = read(fd, text + n, TTI_YAML_MAX_BYTES + 1 - n);
        if (got == 0) break;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_file(path, strerror(errno));
        n += (size_t)got;
    }
    if (n > TTI_YAML_MAX_BYTES) return fail_file(path, "larger than 1 MiB");
    *n_bytes = n;
    return TUTTI_OK;
}

/* Some editors write a byte order mark at the begin of a file.  In UTF-8 it has no meaning. */
static tutti_status drop_mark(const char *path, const char **text, size_t *n_bytes) {
    const char *mark = tti_utf8_other_mark(*text, *n_bytes);
    if (mark)
        return fail_file(
            path, mark[4] == '3' ? "is UTF-32; save it as UTF-8" : "is UTF-16; save it as UTF-8");
    if (*n_bytes < 3 || memcmp(*text, "\xEF\xBB\xBF", 3) != 0) return TUTTI_OK;
    *text += 3;
    *n_bytes -= 3;
    return TUTTI_OK;
}

tutti_status tti_yaml_read_file(const char *path, tti_arena *arena, const char **text,
                                size_t *n_bytes) {
    struct stat info;
    tutti_status st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not block */
    if (fd < 0)
        return fail_file(path,
                         errno == ENXIO ? "not a regular file" : strerror(errno)); /* socket */
    char *bytes = NULL;
    if (fstat(fd, &info) < 0) {
        st = fail_file(path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        st = fail_file(path, "not a regular file");
    } else if (!(bytes = tti_arena_alloc(arena, TTI_YAML_MAX_BYTES + 2))) {
        st = tti_fail(TUTTI_E_NOMEM, "yaml: out of memory");
    } else {
        st = read_all(fd, path, bytes, n_bytes);
    }
    close(fd);
    if (st != TUTTI_OK) return st;
    *text = bytes;
    return drop_mark(path, text, n_bytes);
}
