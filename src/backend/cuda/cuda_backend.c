/* cuda_backend.c - the table of the CUDA backend, and the one symbol that the module exports. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/comm/mail.h"
#include "backend/cuda/comm/nccl.h"
#include "backend/cuda/gemm/wgmma_plan.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/device_check.h"

/* In the order of selection. */
static const tti_kernel *const families[] = {
    tti_cuda_small_gemm_kernels, tti_cuda_matmul_kernels,     tti_cuda_attention_kernels,
    tti_cuda_small_conv_kernels, tti_cuda_point_kernels,      tti_cuda_conv_kernels,
    tti_cuda_norm_kernels,       tti_cuda_batch_norm_kernels, tti_cuda_elementwise_kernels,
    tti_cuda_reduce_kernels,     tti_cuda_random_kernels,     tti_cuda_shape_kernels,
    tti_cuda_embed_kernels,      tti_cuda_pool_kernels,       tti_cuda_resample_kernels,
    tti_cuda_softmax_kernels,    tti_cuda_loss_kernels,       tti_cuda_recurrent_kernels,
    tti_cuda_optim_kernels,      tti_cuda_piece_kernels,      tti_cuda_vocabulary_kernels,
    tti_cuda_head_kernels,
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
    .kind = tti_cuda_kind,
    .open = tti_cuda_open,
    .close = tti_cuda_close,
    .alloc_host = tti_cuda_alloc_host,
    .release_host = tti_cuda_release_host,
    .pin = tti_cuda_pin,
    .unpin = tti_cuda_unpin,
    .copy = tti_cuda_copy,
    .order = tti_cuda_order,
    .note = tti_cuda_note,
    .follow = tti_cuda_follow,
    .mark = tti_cuda_mark,
    .await = tti_cuda_await,
    .sync = tti_cuda_sync,
    .range = tti_cuda_range,
    .stamp = tti_cuda_stamp,
    .read_stamps = tti_cuda_read_stamps,
    .record_begin = tti_cuda_record_begin,
    .record_end = tti_cuda_record_end,
    .replay = tti_cuda_replay,
    .release_recording = tti_cuda_release_recording,
    .begin_step = tti_cuda_begin_step,
    .gather = tti_cuda_gather,
    .unpack = tti_cuda_unpack,
    .draw = tti_cuda_draw,
    .tell = tti_cuda_tell,
    .collect = tti_cuda_collect,
    .join = tti_cuda_join,
    .update_create = tti_cuda_update_create,
    .update_run = tti_cuda_update_run,
    .update_complete = tti_cuda_update_complete,
    .update_hash = tti_cuda_update_hash,
    .update_narrow = tti_cuda_update_narrow,
    .update_destroy = tti_cuda_update_destroy,
    .peers_meet = tti_cuda_peers_meet,
    .mixes_ways = true,
    .peers_part = tti_cuda_peers_part,
    .peers_describe = tti_cuda_peers_describe,
    .peers_are_linked = tti_cuda_peers_are_linked,
    .peers_library = tti_nccl_describe,
    .peers_sum = tti_cuda_peers_sum,
    .peers_sum_parts = tti_cuda_peers_sum_parts,
    .peers_fetch = tti_cuda_peers_fetch,
    .peers_spread = tti_cuda_peers_spread,
    .peers_join = tti_cuda_peers_join,
    .peers_tell = tti_cuda_peers_tell,
    .peers_can_update = tti_cuda_peers_can_update,
    .peers_update = tti_cuda_peers_update,
    .peers_trade = tti_cuda_peers_trade,
    .peers_put = tti_cuda_peers_put,
    .peers_take = tti_cuda_peers_take,
    .peers_leave = tti_cuda_peers_leave,
    .peers_norm = tti_cuda_peers_norm,
    .peers_norm_grad = tti_cuda_peers_norm_grad,
    .can_push = tti_cuda_can_push,
    .peers_push = tti_cuda_peers_push,
    .peers_bring = tti_cuda_peers_bring,
    .can_pull = tti_cuda_can_pull,
    .peers_pull = tti_cuda_peers_pull,
    .least_norm_grad = 1,
    .thin_create = tti_cuda_thin_create,
    .thin_left = tti_cuda_thin_left,
    .thin_right = tti_cuda_thin_right,
    .thin_end = tti_cuda_thin_end,
    .thin_destroy = tti_cuda_thin_destroy,
    .pick_create = tti_cuda_pick_create,
    .pick_choose = tti_cuda_pick_choose,
    .pick_add = tti_cuda_pick_add,
    .pick_destroy = tti_cuda_pick_destroy,
    .fold = tti_cuda_fold,
    .unfold = tti_cuda_unfold,
    .updates_beside = true,
    .peers_await = tti_cuda_peers_await,
    .peers_waited = tti_cuda_peers_waited,
    .link = tti_cuda_link,
    .memory = tti_cuda_memory,
};

const tti_backend tti_backend_cuda = {
    .name = "cuda",
    .device = &device_ops,
    .select = select_kernel,
    .prefers_channels_last = prefers_channels_last,
    .fuses_pool = tti_cuda_fuses_pool,
    .alloc = tti_cuda_alloc,
    .release = tti_cuda_release,
    .thread_init = thread_init,
    .accumulate = tti_cuda_accumulate,
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
                     ", but of sources that differ (%#x and %#x): build the older one anew",
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
