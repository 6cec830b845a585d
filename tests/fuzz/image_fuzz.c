/* image_fuzz.c - JPEG and PNG files from anywhere: head, decoding of a part, of all, and as a mask.
 * Pictures with more than a quarter of a million pixels are left out, for speed. */
#include "base/error.h"
#include "data/image/image.h"

enum { MAX_PIXELS = 1 << 18 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tti_blob blob = {data, size, "fuzz", 0};
    tti_image_head head;
    tti_image image;
    tti_workspace ws = {0};
    if (tti_image_read_head(&blob, &head) != TUTTI_OK) return 0;
    TTI_ASSERT(head.h >= 1 && head.w >= 1 && head.orientation >= 1 && head.orientation <= 8);
    if (head.h * head.w > MAX_PIXELS) return 0;
    const tti_box boxes[] = {{0, 0, head.h, head.w}, {head.h / 3, 0, head.h - head.h / 2, head.w}};
    for (size_t i = 0; i < TTI_COUNT(boxes); i++) {
        tti_box box = boxes[i];
        box.h = TTI_MIN(box.h, head.h - box.y);
        if (tti_image_decode(&blob, &head, &box, &ws, &image) != TUTTI_OK) continue;
        uint8_t out[8 * 8 * 3];
        tti_resize how = {box, 8, 8, {0, 0, 8, 8}, i == 1};
        TTI_ASSERT(tti_image_resize(&image, &how, &ws, out) == TUTTI_OK);
    }
    if (head.is_png &&
        tti_buffer_reserve(&ws.pixels, (size_t)(head.h * head.w) * sizeof(uint16_t)) == TUTTI_OK)
        (void)!tti_png_decode_labels(&blob, (uint16_t *)(void *)ws.pixels.bytes);
    tti_workspace_free(&ws);
    return 0;
}
