/* error.c - the per-thread message of the last failure, and the status tables. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char last_error[8192];
static void (*forward_to)(tutti_status code, const char *text);

void tti_error_forward(void (*fail)(tutti_status code, const char *text)) { forward_to = fail; }

tutti_status tti_fail(tutti_status code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char text[sizeof last_error]; /* the arguments may point into last_error */
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(last_error, text, sizeof last_error);
    if (forward_to) forward_to(code, last_error);
    return code;
}

void tti_fail_context(const char *format, ...) {
    char prefix[512], text[sizeof last_error];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    int n = snprintf(text, sizeof text, "%s%s", prefix, last_error);
    (void)n; /* a cut text is still a text */
    memcpy(last_error, text, sizeof last_error);
}

tutti_status tti_need(const void *argument, const char *who, const char *what) {
    return argument ? TUTTI_OK : tti_fail(TUTTI_E_INVALID, "%s: %s is NULL", who, what);
}

void tti_clear_error(void) { last_error[0] = '\0'; }

void tti_assert_failed(const char *expr, const char *file, int line) {
    fprintf(stderr, "tutti: %s:%d: internal error: assertion failed: %s\n", file, line, expr);
    abort();
}

const char *tutti_last_error(void) { return last_error; }

static const struct {
    const char *text;
    int exit_code;
} statuses[] = {
#define STATUS_ROW(name, exit_code, text) {text, exit_code},
    TUTTI_STATUS_MAP(STATUS_ROW)
#undef STATUS_ROW
};

const char *tutti_status_text(tutti_status status) {
    return (unsigned)status < TUTTI_N_STATUS ? statuses[status].text : "unknown status";
}

int tutti_status_exit_code(tutti_status status) {
    return (unsigned)status < TUTTI_N_STATUS ? statuses[status].exit_code : 1;
}
