/* protobuf.h - reads the fields of a protobuf message in memory, one after the other.
 *
 * Allocates nothing, and reads nothing outside of the message, even if it is damaged. */
#ifndef TTI_IMPORT_PROTOBUF_H
#define TTI_IMPORT_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The unread rest of a message, or of a list of packed numbers. */
typedef struct tti_pb {
    const uint8_t *at, *end;
} tti_pb;

typedef enum tti_pb_wire {
    TTI_PB_VARINT = 0,
    TTI_PB_FIXED64 = 1,
    TTI_PB_BYTES = 2, /* a text, a nested message, or packed numbers */
    TTI_PB_FIXED32 = 5
} tti_pb_wire;

typedef struct tti_pb_field {
    uint32_t number;
    tti_pb_wire wire;
    uint64_t value; /* value of a varint or a fixed number */
    tti_pb bytes;
} tti_pb_field;

typedef enum tti_pb_next {
    TTI_PB_FIELD,
    TTI_PB_END,
    TTI_PB_DAMAGED /* truncated, a varint of more than 64 bits, or an unknown wire type */
} tti_pb_next;

/* Reads the next field and advances message. */
tti_pb_next tti_pb_read(tti_pb *message, tti_pb_field *out);

/* Reads the next number of a packed list with elements of that wire type, and advances list. False:
 * the list is at its end, or damaged if at != end. */
bool tti_pb_read_packed(tti_pb *list, tti_pb_wire wire, uint64_t *out);

size_t tti_pb_n_bytes(const tti_pb *bytes);
double tti_pb_float(uint64_t value); /* from the bits of a fixed 32-bit number */

#endif /* TTI_IMPORT_PROTOBUF_H */
