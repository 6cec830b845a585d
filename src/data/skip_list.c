/* skip_list.c - one bit per sample, and the messages of the first ones, under one mutex: bad
 * samples are rare, so the mutex costs nothing. */
#include "data/skip_list.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct tti_skip_list {
    pthread_mutex_t mutex;
    int64_t n_samples, count;
    int n_texts;
    char *text[TTI_MAX_SKIP_TEXTS];
    uint8_t seen[]; /* a bit per sample */
};

tutti_status tti_skip_list_create(int64_t n_samples, tti_skip_list **out) {
    *out = NULL;
    tti_skip_list *list = calloc(1, sizeof *list + (size_t)n_samples / 8 + 1);
    if (!list) return tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    list->n_samples = n_samples;
    pthread_mutex_init(&list->mutex, NULL);
    *out = list;
    return TUTTI_OK;
}

void tti_skip_list_add(tti_skip_list *list, int64_t index, const char *reason) {
    TTI_ASSERT(index >= 0 && index < list->n_samples);
    uint8_t *byte = &list->seen[index / 8], bit = (uint8_t)(1u << (index % 8));
    pthread_mutex_lock(&list->mutex);
    bool is_new = !(*byte & bit);
    *byte |= bit;
    list->count += is_new;
    if (is_new && list->n_texts < TTI_MAX_SKIP_TEXTS) {
        char *copy = strdup(reason);
        if (copy) list->text[list->n_texts++] = copy;
    }
    pthread_mutex_unlock(&list->mutex);
}

int64_t tti_skip_list_count(tti_skip_list *list) {
    pthread_mutex_lock(&list->mutex);
    int64_t n = list->count;
    pthread_mutex_unlock(&list->mutex);
    return n;
}

const char *tti_skip_list_text(tti_skip_list *list, int64_t i) {
    pthread_mutex_lock(&list->mutex);
    const char *text = i >= 0 && i < list->n_texts ? list->text[i] : NULL;
    pthread_mutex_unlock(&list->mutex);
    return text;
}

void tti_skip_list_destroy(tti_skip_list *list) {
    if (!list) return;
    for (int i = 0; i < list->n_texts; i++) free(list->text[i]);
    pthread_mutex_destroy(&list->mutex);
    free(list);
}
