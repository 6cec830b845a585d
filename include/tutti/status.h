/* status.h - the result of a call.
 *
 * Every fallible call returns a tutti_status; TUTTI_OK is 0.  The message of the last failure is
 * kept per thread and read with tutti_last_error(); it states the function, the object and the
 * values.  The library never prints and never exits. */
#ifndef TUTTI_STATUS_H
#define TUTTI_STATUS_H

#ifdef __cplusplus
#define TUTTI_EXTERN_C_BEGIN extern "C" {
#define TUTTI_EXTERN_C_END }
#else
#define TUTTI_EXTERN_C_BEGIN
#define TUTTI_EXTERN_C_END
#endif

#define TUTTI_API __attribute__((visibility("default")))
#define TUTTI_NODISCARD __attribute__((warn_unused_result))

/* name, exit code of the program, text.  Codes: docs/troubleshooting.md. */
#define TUTTI_STATUS_MAP(X)                            \
    X(OK, 0, "ok")                                     \
    X(E_INVALID, 2, "invalid argument")                \
    X(E_CONFIG, 2, "invalid configuration")            \
    X(E_UNSUPPORTED, 2, "not supported here")          \
    X(E_IO, 1, "input/output error")                   \
    X(E_DATA, 3, "bad data")                           \
    X(E_CHECKPOINT, 4, "bad or unwritable checkpoint") \
    X(E_PEER, 5, "a peer was lost or failed")          \
    X(E_TIMEOUT, 6, "timed out")                       \
    X(E_NUMERICS, 7, "numerical failure")              \
    X(E_NOMEM, 8, "out of memory")                     \
    X(E_MISMATCH, 9, "ranks or replicas disagree")     \
    X(E_INTERRUPTED, 130, "interrupted")               \
    X(E_DEVICE, 10, "a device failed")                 \
    X(E_INTERNAL, 1, "internal error")

typedef enum tutti_status {
#define TUTTI_STATUS_ENUM(name, exit_code, text) TUTTI_##name,
    TUTTI_STATUS_MAP(TUTTI_STATUS_ENUM)
#undef TUTTI_STATUS_ENUM
        TUTTI_N_STATUS
} tutti_status;

TUTTI_EXTERN_C_BEGIN

/* A short constant text for a status, such as "out of memory".  Never NULL. */
TUTTI_API const char *tutti_status_text(tutti_status status);

/* The exit code that the tutti program uses for a status, 0 .. 255. */
TUTTI_API int tutti_status_exit_code(tutti_status status);

/* Returns the message of the last failure on the calling thread, "" if there was none.  Calls on
 * jobs and data sets (tutti_train, tutti_eval, ...) clear it when they succeed.  The text is
 * borrowed: valid until the next call on the same thread. */
TUTTI_API const char *tutti_last_error(void);

TUTTI_EXTERN_C_END

#endif /* TUTTI_STATUS_H */
