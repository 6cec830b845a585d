/* device.h - the functions of device.c in the backend's table; see tti_device_ops. */
#ifndef TTI_CUDA_DEVICE_H
#define TTI_CUDA_DEVICE_H

#include "backend/cuda/runtime/cuda.h"

int tti_cuda_count(void);
void tti_cuda_describe_device(int index, tti_str *str);
uint64_t tti_cuda_identity(int index);
bool tti_cuda_is_exclusive(int index);
void tti_cuda_kind(int index, tti_str *str);
tutti_status tti_cuda_open(const tti_device_desc *desc);
void tti_cuda_close(void);

void *tti_cuda_alloc(size_t n_bytes);
void tti_cuda_release(void *memory, size_t n_bytes);
void *tti_cuda_alloc_host(size_t n_bytes);
void tti_cuda_release_host(void *memory);
void *tti_cuda_alloc_lasting(size_t n_bytes);
void tti_cuda_release_lasting(void *memory);
tutti_status tti_cuda_pin(void *memory, size_t n_bytes);
void tti_cuda_unpin(void *memory);
void tti_cuda_memory(size_t *n_now, size_t *n_peak, size_t *n_free);

tutti_status tti_cuda_copy(tti_queue queue, void *dst, const void *src, size_t n_bytes);
tutti_status tti_cuda_clear(tti_queue queue, void *dst, size_t n_bytes);
tutti_status tti_cuda_order(tti_queue after, tti_queue before);
tutti_status tti_cuda_record_event(tti_queue queue, int place);
tutti_status tti_cuda_wait_event(tti_queue after, int place);
tutti_status tti_cuda_record_host_event(tti_queue queue, int event);
tutti_status tti_cuda_await(int event);
tutti_status tti_cuda_sync(void);
/* Waits for the event and calls look every millisecond meanwhile; a failure of look ends the wait.
 */
typedef tutti_status tti_cuda_look_fn(void *user, int64_t now_ns);
tutti_status tti_cuda_poll(cudaEvent_t event, tti_cuda_look_fn *look, void *user);
/* The watcher is borrowed until it is removed; removing one that is not there does nothing. */
void tti_cuda_add_watcher(tti_cuda_watcher *watcher);
void tti_cuda_remove_watcher(tti_cuda_watcher *watcher);

void tti_cuda_range(const char *name); /* range.c */
tutti_status tti_cuda_record_timestamp(tti_queue queue, int timestamp);
tutti_status tti_cuda_read_timestamps(int n, double *us);

tutti_status tti_cuda_capture_begin(void);
tutti_status tti_cuda_capture_end(void **captured_graph);
tutti_status tti_cuda_replay(void *captured_graph);
void tti_cuda_release_captured_graph(void *captured_graph);

tutti_status tti_cuda_begin_step(const tti_step_args *args, const tti_run *fixed, tti_run *runs,
                                 int n_runs);
tutti_status tti_cuda_gather(const tti_gather *gather, const tti_run *fixed, tti_run *runs);
tutti_status tti_cuda_unpack(tti_queue queue, const tti_unpack *unpack);
tutti_status tti_cuda_draw(const tti_draws *draws, int n, float *params);
tutti_status tti_cuda_report(const tti_step_report *report, const double *sums, int n_sums,
                             void *host_report);
tutti_status tti_cuda_collect(const tti_collected *collected, double *sums);
void tti_cuda_accumulate(float *dst, const float *src, size_t n_elems);
void tti_cuda_accumulate_rounded(float *dst, const float *src, size_t n_elems);

/* peers.c: the devices of a job. */
tutti_status tti_cuda_peers_connect(const tti_device_peers *peers, void **group);
void tti_cuda_peers_disconnect(void *group);
void tti_cuda_peers_describe(const void *group, tti_str *str);
bool tti_cuda_peers_are_linked(const void *group);
tutti_status tti_cuda_peers_sum(void *group, size_t first, size_t n_elems, bool overlapped);
tutti_status tti_cuda_peers_sum_partitions(void *group, size_t which, bool overlapped);
tutti_status tti_cuda_peers_fetch(void *group, size_t which, int source, float *dst,
                                  bool overlapped);
tutti_status tti_cuda_peers_all_gather(void *group, void *words, size_t n_words, size_t first,
                                       size_t last);
tutti_status tti_cuda_peers_join(void *group, const tti_device_join *join, bool *done);
tutti_status tti_cuda_report_sums(const tti_device_step_sums *host_report);
tutti_status tti_cuda_peers_tp(void *group, const tti_tp_collective *tp, bool overlapped);
tutti_status tti_cuda_peers_norm(void *group, const tti_device_norm *norm);
tutti_status tti_cuda_peers_norm_grad(void *group, const tti_device_norm *norm);
bool tti_cuda_can_push(const tti_node *product, size_t n_rows, int n_ranks);
bool tti_cuda_can_pull(const tti_node *product, size_t n_rows, int n_ranks);
tutti_status tti_cuda_peers_pull(void *group, const tti_device_push *pull);
tutti_status tti_cuda_peers_gather_rows(void *group, const tti_device_norm *norm);
tutti_status tti_cuda_peers_push(void *group, const tti_device_push *push);
tutti_status tti_cuda_fold(const double *values, const tti_device_lists *lists, double *sums);
tutti_status tti_cuda_unfold(double *values, size_t n_values, const tti_device_lists *lists,
                             const double *sums);
tutti_status tti_cuda_peers_await(void *group, int event);
const uint32_t *tti_cuda_peers_failure(const void *group);
tutti_status tti_cuda_peers_waited(void *group, int64_t *t_ns);
/* powersgd.c: PowerSGD. */
tutti_status tti_cuda_powersgd_create(const tti_powersgd_desc *desc, void **powersgd);
tutti_status tti_cuda_powersgd_left(void *powersgd, int bucket);
tutti_status tti_cuda_powersgd_right(void *powersgd, int bucket);
tutti_status tti_cuda_powersgd_end(void *powersgd, int bucket);
void tti_cuda_powersgd_destroy(void *powersgd);
/* topk.c: top-k. */
tutti_status tti_cuda_topk_create(const tti_topk_desc *desc, void **topk);
tutti_status tti_cuda_topk_choose(void *topk, int bucket);
tutti_status tti_cuda_topk_add(void *topk, int bucket);
void tti_cuda_topk_destroy(void *topk);
/* peers_update.c */
tutti_status tti_cuda_peers_can_update(const void *group, const void *update, size_t first,
                                       bool *can);
tutti_status tti_cuda_peers_update(void *group, void *update, const tti_device_step_sums *step_sums,
                                   size_t first);

/* link.c.  Enables reading the memory of another device of the machine by the device of this
 * thread; false: impossible.  For the rest of the process; any thread may call it repeatedly. */
bool tti_cuda_reach(int there);
/* Whether NVLink or the like connects that memory; the device is identified as in cudaDeviceProp.
 */
bool tti_cuda_has_link(const unsigned char uuid[16]);
tutti_status tti_cuda_link(int other, tti_device_link *out);

#endif /* TTI_CUDA_DEVICE_H */
