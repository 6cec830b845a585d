/* protobuf.h - reads the fields of a protobuf message, one after the other, out of memory.
 *
 * Nothing is allocated, and nothing outside of the message is read, whatever its bytes are. */
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
    TTI_PB_BYTES = 2, /* a text, a message inside, or packed numbers */
    TTI_PB_FIXED32 = 5
} tti_pb_wire;

typedef struct tti_pb_field {
    uint32_t number;
    tti_pb_wire wire;
    uint64_t value; /* of a varint or a fixed number */
    tti_pb bytes;
} tti_pb_field;

typedef enum tti_pb_next {
    TTI_PB_FIELD,
    TTI_PB_END,
    TTI_PB_DAMAGED /* truncated, a varint of more than 64 bits, or a wire type that is unknown */
} tti_pb_next;

/* Takes the next field. */
tti_pb_next tti_pb_read(tti_pb *message, tti_pb_field *out);

/* Takes a number of a packed list: its wire type is not VARINT for floats.  False at the end and
 * where it is damaged; then at != end. */
bool tti_pb_read_packed(tti_pb *list, tti_pb_wire wire, uint64_t *out);

size_t tti_pb_n_bytes(const tti_pb *bytes);
double tti_pb_float(uint64_t value); /* of a fixed 32-bit number */

#endif /* TTI_IMPORT_PROTOBUF_H */
