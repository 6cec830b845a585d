/* comm_thread.h - the thread that runs the communication instructions of a step program while
 * compute threads run, and how the two wait for each other.
 *
 * Waits have no timeout of their own: they end when a collective does, which has one.  After a
 * failure the rest of the step's communication is skipped and no compute thread waits any more. */
#ifndef TTI_EXEC_COMM_THREAD_H
#define TTI_EXEC_COMM_THREAD_H

#include "exec/program/step_program.h"

typedef struct tti_comm_thread tti_comm_thread;

/* Runs one instruction.  Called on the thread, which alone may use the communicator then. */
typedef tutti_status (*tti_instr_fn)(const tti_instr *instr, void *user);

/* For programs of at most n_instrs instructions. core: pinned there, -1: not pinned.  On success
 * *out is owned by the caller. */
tutti_status tti_comm_thread_create(int n_instrs, int core, tti_instr_fn fn, void *user,
                                    tti_comm_thread **out);
void tti_comm_thread_destroy(tti_comm_thread *thread); /* takes NULL */

/* Begins a step. */
void tti_comm_thread_begin(tti_comm_thread *thread, const tti_step_program *program);

/* The failure of an instruction of this step, if one failed. */
tutti_status tti_comm_thread_check(tti_comm_thread *thread);

/* Waits until all instructions of the step are done, or one failed; OK where none was begun. */
tutti_status tti_comm_thread_finish(tti_comm_thread *thread);

/* A lane on its way through one lane instruction.  thread NULL: nothing is communicated. */
typedef struct tti_lane_cursor {
    tti_comm_thread *thread;
    const tti_step_program *program;
    int next_signal;          /* communication instruction that waits for this lane */
    int next_wait, last_wait; /* of the lane, in program->waits */
} tti_lane_cursor;

tti_lane_cursor tti_lane_cursor_at(tti_comm_thread *thread, const tti_step_program *program,
                                   int instr);

/* Whether something waits for the lane in this instruction, or it for something. */
bool tti_lane_cursor_is_used(const tti_lane_cursor *cursor);

/* The lane has done the steps before this one. */
void tti_lane_cursor_signal(tti_lane_cursor *cursor, int step);

/* Whether the lane must wait before this step; returns when it may do the step, or after a
 * failure. */
bool tti_lane_cursor_must_wait(const tti_lane_cursor *cursor, int step);
void tti_lane_cursor_wait(tti_lane_cursor *cursor, int step);

/* The lane leaves the instruction, whether it did the steps or not: a lane that failed must not
 * keep other workers waiting. */
void tti_lane_cursor_leave(tti_lane_cursor *cursor);

#endif /* TTI_EXEC_COMM_THREAD_H */
