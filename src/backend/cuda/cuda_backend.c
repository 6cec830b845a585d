/* cuda_backend.c - the table of the CUDA backend, and the one symbol that the module exports. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/comm/nccl.h"
#include "backend/cuda/comm/p2p.h"
#include "backend/cuda/gemm/wgmma_plan.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/device_check.h"

/* In the order of selection. */
static const tti_kernel *const families[] = {
    tti_cuda_small_gemm_kernels,  tti_cuda_matmul_kernels,    tti_cuda_attention_kernels,
    tti_cuda_small_conv_kernels,  tti_cuda_depthwise_kernels, tti_cuda_point_kernels,
    tti_cuda_conv_kernels,        tti_cuda_norm_kernels,      tti_cuda_batch_norm_kernels,
    tti_cuda_elementwise_kernels, tti_cuda_reduce_kernels,    tti_cuda_random_kernels,
    tti_cuda_shape_kernels,       tti_cuda_embed_kernels,     tti_cuda_pool_kernels,
    tti_cuda_resample_kernels,    tti_cuda_softmax_kernels,   tti_cuda_loss_kernels,
    tti_cuda_recurrent_kernels,   tti_cuda_optim_kernels,     tti_cuda_tensor_shard_kernels,
    tti_cuda_vocabulary_kernels,  tti_cuda_head_kernels,      tti_cuda_along_kernels,
    tti_cuda_grouped_kernels,     tti_cuda_sdpa_kernels,      tti_cuda_counts_kernels,
};

static const tti_kernel *find_in(const tti_kernel *list, const tti_node *node) {
    for (; list->op; list++) {
        bool named = strcmp(list->op, node->op->name) == 0;
        if (named && (!list->can_run || list->can_run(node))) return list;
    }
    return NULL;
}

static const tti_kernel *select_kernel(const tti_node *node, bool reference_only) {
    if ((node->op->traits & TTI_SOURCE) || reference_only) return NULL;
    const tti_kernel *kernel = NULL;
    for (size_t i = 0; i < TTI_COUNT(families) && !kernel; i++) kernel = find_in(families[i], node);
    return kernel;
}

/* Plans of cuDNN take up to a second each: preparing the nodes once without them collects them. */
static void precompile(tti_node *const *nodes, int n) {
    if (!tti_cuda_dnn_collect_begin()) return;
    for (int i = 0; i < n; i++) {
        void *state = NULL;
        const tti_kernel *kernel = select_kernel(nodes[i], false);
        if (!kernel || !kernel->prepare || strcmp(kernel->name, "cudnn") != 0) continue;
        if (kernel->prepare(nodes[i], &state) == TUTTI_OK)
            kernel->release(state);
        else
            tti_clear_error();
    }
    tti_cuda_dnn_collect_end();
}

static bool prefers_channels_last(const tti_node *node) {
    return (node->op->traits & TTI_CHANNELS_LAST) != 0 && node->n_in > 0;
}

static void thread_init(void) {}

static void describe(tti_str *str) {
    int runtime = 0, driver = 0;
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    tti_str_printf(str, "cuda: runtime %d.%d, driver %d.%d, ", runtime / 1000, runtime % 1000 / 10,
                   driver / 1000, driver % 1000 / 10);
    tti_cuda_blas_describe(str);
    tti_str_add(str, ", ");
    tti_cuda_dnn_describe(str);
}

static const tti_device_ops device_ops = {
    .count = tti_cuda_count,
    .describe = tti_cuda_describe_device,
    .identity = tti_cuda_identity,
    .is_exclusive = tti_cuda_is_exclusive,
    .kind = tti_cuda_kind,
    .open = tti_cuda_open,
    .close = tti_cuda_close,
    .memory.alloc_host = tti_cuda_alloc_host,
    .memory.release_host = tti_cuda_release_host,
    .memory.alloc_lasting = tti_cuda_alloc_lasting,
    .memory.release_lasting = tti_cuda_release_lasting,
    .memory.pin = tti_cuda_pin,
    .memory.unpin = tti_cuda_unpin,
    .queues.copy = tti_cuda_copy,
    .queues.order = tti_cuda_order,
    .queues.record_event = tti_cuda_record_event,
    .queues.wait_event = tti_cuda_wait_event,
    .queues.record_host_event = tti_cuda_record_host_event,
    .queues.await_host_event = tti_cuda_await,
    .queues.sync = tti_cuda_sync,
    .queues.range = tti_cuda_range,
    .queues.record_timestamp = tti_cuda_record_timestamp,
    .queues.read_timestamps = tti_cuda_read_timestamps,
    .queues.capture_begin = tti_cuda_capture_begin,
    .queues.capture_end = tti_cuda_capture_end,
    .queues.replay = tti_cuda_replay,
    .queues.release_captured_graph = tti_cuda_release_captured_graph,
    .step.begin = tti_cuda_begin_step,
    .step.gather = tti_cuda_gather,
    .step.unpack = tti_cuda_unpack,
    .step.draw = tti_cuda_draw,
    .step.report = tti_cuda_report,
    .step.collect = tti_cuda_collect,
    .step.join = tti_cuda_join,
    .update.create = tti_cuda_update_create,
    .update.run = tti_cuda_update_run,
    .update.complete = tti_cuda_update_complete,
    .update.hash = tti_cuda_update_hash,
    .update.low_copies = tti_cuda_update_low_copies,
    .update.destroy = tti_cuda_update_destroy,
    .collectives.connect = tti_cuda_peers_connect,
    .collectives.mixes_algorithms = true,
    .collectives.disconnect = tti_cuda_peers_disconnect,
    .collectives.describe = tti_cuda_peers_describe,
    .collectives.are_linked = tti_cuda_peers_are_linked,
    .collectives.describe_library = tti_nccl_describe,
    .collectives.all_reduce = tti_cuda_peers_sum,
    .collectives.reduce_scatter = tti_cuda_peers_sum_partitions,
    .collectives.all_gather = tti_cuda_peers_fetch,
    .collectives.all_gather_words = tti_cuda_peers_all_gather,
    .collectives.join = tti_cuda_peers_join,
    .collectives.report_sums = tti_cuda_report_sums,
    .fusions.can_update = tti_cuda_peers_can_update,
    .fusions.update = tti_cuda_peers_update,
    .collectives.tp_collective = tti_cuda_peers_tp,
    .p2p.send = tti_cuda_peers_send,
    .p2p.recv = tti_cuda_peers_recv,
    .p2p.release = tti_cuda_peers_release,
    .fusions.most_norm_ranks = 2,
    .fusions.norm = tti_cuda_peers_norm,
    .fusions.norm_grad = tti_cuda_peers_norm_grad,
    .fusions.can_push = tti_cuda_can_push,
    .fusions.push = tti_cuda_peers_push,
    .fusions.gather_rows = tti_cuda_peers_gather_rows,
    .fusions.can_pull = tti_cuda_can_pull,
    .fusions.pull = tti_cuda_peers_pull,
    .fusions.least_norm_grad = 1,
    .powersgd.create = tti_cuda_powersgd_create,
    .powersgd.left = tti_cuda_powersgd_left,
    .powersgd.right = tti_cuda_powersgd_right,
    .powersgd.end = tti_cuda_powersgd_end,
    .powersgd.destroy = tti_cuda_powersgd_destroy,
    .topk.create = tti_cuda_topk_create,
    .topk.choose = tti_cuda_topk_choose,
    .topk.add = tti_cuda_topk_add,
    .topk.destroy = tti_cuda_topk_destroy,
    .step.fold = tti_cuda_fold,
    .step.unfold = tti_cuda_unfold,
    .update.is_overlapped = true,
    .collectives.await = tti_cuda_peers_await,
    .collectives.failure = tti_cuda_peers_failure,
    .collectives.get_waited_ns = tti_cuda_peers_waited,
    .link = tti_cuda_link,
    .memory.get_usage = tti_cuda_memory,
};

const tti_backend tti_backend_cuda = {
    .name = "cuda",
    .device = &device_ops,
    .select = select_kernel,
    .precompile = precompile,
    .prefers_channels_last = prefers_channels_last,
    .strided = true,
    .fuses_pool = tti_cuda_fuses_pool,
    .alloc = tti_cuda_alloc,
    .release = tti_cuda_release,
    .thread_init = thread_init,
    .accumulate = tti_cuda_accumulate,
    .accumulate_rounded = tti_cuda_accumulate_rounded,
    .fuses_training = true,
    .joins_exact_gelu = tti_cuda_wgmma_joins,
    .joins_gradient = tti_cuda_point_joins,
    .joins_head = tti_cuda_wgmma_joins_head,
    .weights = &tti_weights_gpu,
    .describe = describe,
};

static bool has_driver(void) {
    tti_cuda_found found = {0};
    cudaRuntimeGetVersion(&found.runtime);
    if (cudaDriverGetVersion(&found.driver) != cudaSuccess) found.driver = 0;
    found.counted = cudaGetDeviceCount(&found.n);
    return tti_cuda_fits_driver(&found) == TUTTI_OK;
}

TUTTI_API const tti_backend *tutti_backend_module(const tti_module_host *host);

const tti_backend *tutti_backend_module(const tti_module_host *host) {
    bool same_version = strcmp(host->version, TUTTI_VERSION) == 0;
    if (host->abi != TTI_MODULE_ABI || !same_version) {
        char text[200];
        if (same_version)
            snprintf(text, sizeof text,
                     "the module and the program are both of tutti " TUTTI_VERSION
                     ", but their sources differ (%#x and %#x): rebuild the older one",
                     (unsigned)TTI_MODULE_ABI, (unsigned)host->abi);
        else
            snprintf(text, sizeof text,
                     "the module is of tutti " TUTTI_VERSION
                     ", the program of %.32s: install both of the same one",
                     host->version);
        host->fail(TUTTI_E_UNSUPPORTED, text);
        return NULL;
    }
    tti_error_forward(host->fail);
    return has_driver() ? &tti_backend_cuda : NULL;
}
