/* error.h - how a failure is reported inside the library. */
#ifndef TTI_BASE_ERROR_H
#define TTI_BASE_ERROR_H

#include "tutti/status.h"

/* Stores the formatted text for this thread and returns code.  Form of the text:
 * "who: what, with values", for example "conv2d 'conv1': stride must be >= 1, got 0". */
tutti_status tti_fail(tutti_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* Puts a prefix before the text of the last failure: tti_fail_context("job.yaml: "). */
void tti_fail_context(const char *format, ...) __attribute__((format(printf, 1, 2), cold));

/* TUTTI_E_INVALID "who: what is NULL" for a public function, unless there is an argument. */
tutti_status tti_need(const void *argument, const char *who, const char *what);

/* Forgets the last failure of this thread. */
void tti_clear_error(void);

/* A module has a copy of this file: forwards its failures to the program.  Call once, before
 * anything can fail. */
void tti_error_forward(void (*fail)(tutti_status code, const char *text));

/* Ends the process with a message: a broken invariant is a bug of ours, never the user's. */
void tti_assert_failed(const char *expr, const char *file, int line)
    __attribute__((noreturn, cold));

/* Returns from the caller on failure. */
#define TTI_TRY(call)                            \
    do {                                         \
        tutti_status tti_st_ = (call);           \
        if (tti_st_ != TUTTI_OK) return tti_st_; \
    } while (0)

/* Stores the status in the local variable st and jumps on failure. */
#define TTI_TRY_GOTO(call, label)       \
    do {                                \
        st = (call);                    \
        if (st != TUTTI_OK) goto label; \
    } while (0)

/* Kept in release builds; the expression must have no side effect. */
#define TTI_ASSERT(expr)                                           \
    do {                                                           \
        if (!(expr)) tti_assert_failed(#expr, __FILE__, __LINE__); \
    } while (0)

/* Elements of a true array. */
#define TTI_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define TTI_MIN(a, b) ((a) < (b) ? (a) : (b))
#define TTI_MAX(a, b) ((a) > (b) ? (a) : (b))

#endif /* TTI_BASE_ERROR_H */
