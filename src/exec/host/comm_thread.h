/* comm_thread.h - the thread that runs the communication instructions of a step program while
 * compute threads run, and how the two wait for each other.
 *
 * Waits have no timeout of their own: they end when a collective does, which has one.  After a
 * failure the rest of the step's communication is skipped and no compute thread waits any more. */
#ifndef TTI_EXEC_COMM_THREAD_H
#define TTI_EXEC_COMM_THREAD_H

#include "exec/program/exec_program.h"

typedef struct tti_comm_thread tti_comm_thread;

/* Runs one instruction.  Called on the thread, which alone may use the communicator then. */
typedef tutti_status (*tti_instr_fn)(const tti_instr *instr, void *user);

/* Creates a thread for programs of at most n_instrs instructions. core: the core to which it is
 * pinned; -1: not pinned. The caller owns *out, also after a failure. */
tutti_status tti_comm_thread_create(int n_instrs, int core, tti_instr_fn fn, void *user,
                                    tti_comm_thread **out);
void tti_comm_thread_destroy(tti_comm_thread *thread); /* accepts NULL */

/* Begins a step. */
void tti_comm_thread_begin(tti_comm_thread *thread, const tti_step_program *program);

/* The failure of an instruction of this step, if one failed. */
tutti_status tti_comm_thread_check(tti_comm_thread *thread);

/* Waits until all instructions of the step are done or one has failed.  Returns TUTTI_OK if no step
 * was begun. */
tutti_status tti_comm_thread_finish(tti_comm_thread *thread);

/* The state of a compute thread in one COMPUTE_THREADS instruction. thread NULL: the program does
 * not communicate. */
typedef struct tti_compute_thread_cursor {
    tti_comm_thread *thread;
    const tti_step_program *program;
    int next_signal; /* next communication instruction that waits for this compute thread */
    int next_wait, last_wait; /* next entry of program->waits for this compute thread */
} tti_compute_thread_cursor;

tti_compute_thread_cursor tti_compute_thread_cursor_at(tti_comm_thread *thread,
                                                       const tti_step_program *program, int instr);

/* True if the compute thread waits for communication in this instruction, or communication for
 * it. */
bool tti_compute_thread_cursor_is_used(const tti_compute_thread_cursor *cursor);

/* Records that the compute thread has finished the steps before this one. */
void tti_compute_thread_cursor_signal(tti_compute_thread_cursor *cursor, int step);

/* True if the compute thread must wait before this step.  The second function returns when the step
 * may run, or after a failure. */
bool tti_compute_thread_cursor_must_wait(const tti_compute_thread_cursor *cursor, int step);
void tti_compute_thread_cursor_wait(tti_compute_thread_cursor *cursor, int step);

/* Ends the instruction for the compute thread, even if it did not run all steps: a failed compute
 * thread must not keep other workers waiting. */
void tti_compute_thread_cursor_leave(tti_compute_thread_cursor *cursor);

#endif /* TTI_EXEC_COMM_THREAD_H */
