/* protobuf.c - fields of protobuf messages. */
#include "import/onnx/protobuf.h"

#include <string.h>

enum { MAX_FIELD = (1 << 29) - 1 };

/* Reads a varint of at most ten bytes; the last byte has only one bit. */
static bool take_varint(tti_pb *p, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; shift < 64 && p->at < p->end; shift += 7) {
        uint8_t byte = *p->at++;
        if (shift == 63 && byte > 1) return false;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

static bool take_fixed(tti_pb *p, int n_bytes, uint64_t *out) {
    if (p->end - p->at < n_bytes) return false;
    *out = 0;
    for (int i = n_bytes - 1; i >= 0; i--) *out = *out << 8 | p->at[i];
    p->at += n_bytes;
    return true;
}

static bool take_number(tti_pb *p, tti_pb_wire wire, uint64_t *out) {
    switch (wire) {
        case TTI_PB_VARINT:
            return take_varint(p, out);
        case TTI_PB_FIXED64:
            return take_fixed(p, 8, out);
        case TTI_PB_FIXED32:
            return take_fixed(p, 4, out);
        case TTI_PB_BYTES:
            break;
    }
    return false;
}

tti_pb_next tti_pb_read(tti_pb *p, tti_pb_field *out) {
    uint64_t key, n;
    *out = (tti_pb_field){0};
    if (p->at == p->end) return TTI_PB_END;
    if (!take_varint(p, &key) || key >> 3 == 0 || key >> 3 > MAX_FIELD) return TTI_PB_DAMAGED;
    out->number = (uint32_t)(key >> 3);
    out->wire = (tti_pb_wire)(key & 7);
    if (out->wire != TTI_PB_BYTES)
        return take_number(p, out->wire, &out->value) ? TTI_PB_FIELD : TTI_PB_DAMAGED;
    if (!take_varint(p, &n) || n > (uint64_t)(p->end - p->at)) return TTI_PB_DAMAGED;
    out->bytes = (tti_pb){p->at, p->at + n};
    p->at += n;
    return TTI_PB_FIELD;
}

bool tti_pb_read_packed(tti_pb *list, tti_pb_wire wire, uint64_t *out) {
    return list->at < list->end && take_number(list, wire, out);
}

size_t tti_pb_n_bytes(const tti_pb *bytes) { return (size_t)(bytes->end - bytes->at); }

double tti_pb_float(uint64_t value) {
    uint32_t bits = (uint32_t)value;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}
