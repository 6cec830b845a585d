/* device_server.h - a worker on a device with a parameter server on the host.
 *
 * The device computes the gradient, which is copied to pinned host memory, where the server's
 * threads read it (server.h); parameters are copied back.  With one server thread this is known as
 * a tower: variables on the host, computation on its devices. */
#ifndef TTI_EXEC_DEVICE_SERVER_H
#define TTI_EXEC_DEVICE_SERVER_H

#include "exec/worker/desc.h"

typedef struct tti_device_server tti_device_server;

/* The buffers of x exist.  On success *out is owned by the caller and borrows x. */
tutti_status tti_device_server_create(tti_exec *x, tti_device_server **out);
void tti_device_server_destroy(tti_device_server *server); /* takes NULL */

/* Puts it into the compute queue to bring the gradients to the host. */
tutti_status tti_device_server_bring(tti_device_server *server);

/* The end of a step that was begun for its gradient alone: that lies on the host, and its sums are
 * in result.  TUTTI_E_NUMERICS: the loss is not finite. */
tutti_status tti_device_server_gradient(tti_exec *x, tti_step_result *result);

/* Copies host values [n_flat] to an array of the device; waits. */
tutti_status tti_device_server_put(const tti_device_server *server, float *array,
                                   const float *from);

/* tti_exec_end of a synchronous step: the server makes the update. */
tutti_status tti_device_server_end(tti_exec *x, tti_step_result *result);

#endif /* TTI_EXEC_DEVICE_SERVER_H */
