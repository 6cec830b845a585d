/* tfevents.c - writes the subset of protobuf that TensorBoard events need.
 *
 * Values are written as simple_value, as PyTorch's SummaryWriter does; TensorBoard converts them
 * when it reads them. */
#include "train/report/tfevents.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/files/append.h"

/* Protobuf keys: field number << 3 | wire type (0 varint, 1 8 bytes, 2 length and bytes, 5 4
 * bytes).
 */
enum {
    EVENT_TIME = 1 << 3 | 1,
    EVENT_STEP = 2 << 3 | 0,
    EVENT_VERSION = 3 << 3 | 2,
    EVENT_SUMMARY = 5 << 3 | 2,
    EVENT_SESSION_LOG = 7 << 3 | 2,
    SUMMARY_VALUE = 1 << 3 | 2,
    VALUE_TAG = 1 << 3 | 2,
    VALUE_SIMPLE = 2 << 3 | 5,
    SESSION_LOG_STATUS = 1 << 3 | 0
};

/* ---- protobuf ---- */

static void add_fixed(tti_str *out, uint64_t x, int n_bytes) {
    uint8_t bytes[8];
    for (int i = 0; i < n_bytes; i++) bytes[i] = (uint8_t)(x >> (8 * i));
    tti_str_add_bytes(out, bytes, (size_t)n_bytes);
}

static void add_varint(tti_str *out, uint64_t x) {
    for (; x >= 0x80; x >>= 7) add_fixed(out, (x & 0x7f) | 0x80, 1);
    add_fixed(out, x, 1);
}

static void add_key(tti_str *out, int key) { add_varint(out, (uint64_t)key); }

static void add_double(tti_str *out, int key, double x) {
    add_key(out, key);
    add_fixed(out, tti_f64_to_bits(x), 8);
}

static void add_bytes(tti_str *out, int key, const void *bytes, size_t n_bytes) {
    add_key(out, key);
    add_varint(out, n_bytes);
    tti_str_add_bytes(out, bytes, n_bytes);
}

static void add_message(tti_str *out, int key, tti_str *message) {
    add_bytes(out, key, tti_str_text(message), message->n_bytes);
    out->failed |= message->failed;
    tti_str_clear(message);
}

/* ---- records ---- */

static uint32_t masked_crc(const void *bytes, size_t n_bytes) {
    uint32_t crc = tti_crc32c(0, bytes, n_bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void add_record(tti_str *out, const tti_str *event) {
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)event->n_bytes >> (8 * i));
    tti_str_add_bytes(out, length, sizeof length);
    add_fixed(out, masked_crc(length, sizeof length), 4);
    tti_str_add_bytes(out, tti_str_text(event), event->n_bytes);
    add_fixed(out, masked_crc(tti_str_text(event), event->n_bytes), 4);
    out->failed |= event->failed;
}

void tti_tfevents_add_head(tti_str *out, double time_s) {
    static const char version[] = "brain.Event:2";
    tti_str event = {0};
    add_double(&event, EVENT_TIME, time_s);
    add_bytes(&event, EVENT_VERSION, version, sizeof version - 1);
    add_record(out, &event);
    tti_str_free(&event);
}

void tti_tfevents_add_restart(tti_str *out, double time_s, int64_t first_step) {
    enum { STATUS_START = 1 };
    tti_str event = {0}, log = {0};
    add_double(&event, EVENT_TIME, time_s);
    add_key(&event, EVENT_STEP);
    add_varint(&event, (uint64_t)first_step);
    add_key(&log, SESSION_LOG_STATUS);
    add_varint(&log, STATUS_START);
    add_message(&event, EVENT_SESSION_LOG, &log);
    add_record(out, &event);
    tti_str_free(&log);
    tti_str_free(&event);
}

static void add_value(tti_str *summary, tti_str *value, const tti_scalar *scalar) {
    float x = (float)scalar->value;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    add_bytes(value, VALUE_TAG, scalar->tag, strlen(scalar->tag));
    add_key(value, VALUE_SIMPLE);
    add_fixed(value, bits, 4);
    add_message(summary, SUMMARY_VALUE, value);
}

static void free_parts(tti_tfevents_parts *parts) {
    tti_str_free(&parts->value);
    tti_str_free(&parts->summary);
    tti_str_free(&parts->event);
}

/* parts: scratch memory; their contents do not matter. */
static void add_event(tti_str *out, tti_tfevents_parts *parts, double time_s, int64_t step,
                      const tti_scalar *scalars, int n_scalars) {
    tti_str *event = &parts->event;
    tti_str_clear(event);
    tti_str_clear(&parts->summary);
    tti_str_clear(&parts->value);
    for (int i = 0; i < n_scalars; i++) add_value(&parts->summary, &parts->value, &scalars[i]);
    add_double(event, EVENT_TIME, time_s);
    add_key(event, EVENT_STEP);
    add_varint(event, (uint64_t)step);
    add_message(event, EVENT_SUMMARY, &parts->summary);
    add_record(out, event);
}

void tti_tfevents_add(tti_str *out, double time_s, int64_t step, const tti_scalar *scalars,
                      int n_scalars) {
    tti_tfevents_parts parts = {0};
    add_event(out, &parts, time_s, step, scalars, n_scalars);
    free_parts(&parts);
}

/* ---- the file ---- */

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static tutti_status put(tti_tfevents *t) {
    if (t->line.failed) return tti_fail(TUTTI_E_NOMEM, "tfevents: out of memory");
    return tti_append(t->fd, "tfevents", t->line.text, t->line.n_bytes);
}

/* Returns the time in the name of the newest file of the folder; 0: there is none. */
static long long newest_time(const char *run_dir) {
    long long newest = 0, time_s;
    DIR *dir = opendir(run_dir);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (sscanf(e->d_name, "events.out.tfevents.%10lld.", &time_s) == 1)
            newest = TTI_MAX(newest, time_s);
    if (dir) closedir(dir);
    return newest;
}

/* Readers process the files of a folder in the order of their names.  So the time in the name is
 * later than in all other files, even if the clock was set back or another host is behind.
 * Otherwise TensorBoard would drop values before the restart record. */
tutti_status tti_tfevents_open(tti_tfevents *t, const char *run_dir) {
    char host[128] = "host", path[1024];
    double time_s = now_s();
    long long name_s = TTI_MAX((long long)time_s, newest_time(run_dir) + 1);
    *t = (tti_tfevents){.fd = -1};
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "host");
    for (int i = 0; t->fd < 0; i++) {
        snprintf(path, sizeof path, "%s/events.out.tfevents.%010lld.%s.%ld.%d", run_dir, name_s,
                 host, (long)getpid(), i);
        t->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (t->fd < 0 && errno != EEXIST)
            return tti_fail(TUTTI_E_IO, "%s: %s", path, strerror(errno));
    }
    tti_tfevents_add_head(&t->line, time_s);
    return put(t);
}

void tti_tfevents_close(tti_tfevents *t) {
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
    tti_str_free(&t->line);
    free_parts(&t->parts);
}

tutti_status tti_tfevents_write(tti_tfevents *t, int64_t step, const tti_scalar *scalars,
                                int n_scalars) {
    if (t->fd < 0) return TUTTI_OK;
    tti_str_clear(&t->line);
    add_event(&t->line, &t->parts, now_s(), step, scalars, n_scalars);
    return put(t);
}

tutti_status tti_tfevents_restart(tti_tfevents *t, int64_t first_step) {
    if (t->fd < 0) return TUTTI_OK;
    tti_str_clear(&t->line);
    tti_tfevents_add_restart(&t->line, now_s(), first_step);
    return put(t);
}
