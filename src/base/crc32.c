/* crc32.c - CRC-32 by a table, four bits at a time: small, and fast enough for files that are read
 * once. */
#include "base/crc32.h"

/* Remainders of the 16 values of four bits, for the reflected polynomial 0xEDB88320. */
static const uint32_t table[16] = {
    0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
    0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C, 0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};

uint32_t tti_crc32(uint32_t crc, const void *data, size_t n_bytes) {
    const uint8_t *p = data;
    crc = ~crc;
    for (size_t i = 0; i < n_bytes; i++) {
        crc = (crc >> 4) ^ table[(crc ^ p[i]) & 15];
        crc = (crc >> 4) ^ table[(crc ^ (uint32_t)(p[i] >> 4)) & 15];
    }
    return ~crc;
}
