/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What the BPF programs hand to user space. Every layout stands once, in the `records.h` of its
 * collector, and every record once in the list below: build.rs takes from the object's BTF what
 * Rust has of them.
 */
#pragma once

#include "collectors/abandoned/records.h"
#include "collectors/accept_queues/records.h"
#include "collectors/burst/records.h"
#include "collectors/connections/records.h"
#include "collectors/cpu/records.h"
#include "collectors/datagrams/records.h"
#include "collectors/dns/records.h"
#include "collectors/exchanges/records.h"
#include "collectors/futex/records.h"
#include "collectors/herd/records.h"
#include "collectors/names/records.h"
#include "collectors/pushes/records.h"
#include "collectors/responses/records.h"
#include "collectors/samples/records.h"
#include "collectors/sched/records.h"
#include "collectors/sockets/records.h"
#include "collectors/stacks/records.h"
#include "collectors/streams/records.h"
#include "collectors/sweep/records.h"
#include "collectors/tails/records.h"
#include "collectors/tasks/records.h"
#include "collectors/threads/records.h"
#include "collectors/uring/records.h"
#include "core/layout.h"

/*
 * The records, in any order: each name stands for a tag (RECORD_THREAD) and a layout (struct
 * thread_record), which begins with the tag in a field `type`. A layout with a field `stack_len` is
 * followed by as many bytes of a user stack.
 */
#define RECORDS(X)                    \
	X(THREAD, thread)             \
	X(WAIT, wait)                 \
	X(WHOLE_WAIT, whole_wait)     \
	X(BUSY, busy)                 \
	X(PREEMPTED, preempted)       \
	X(CPU_WAIT, cpu_wait)         \
	X(REQUEST, request)           \
	X(SAMPLE, sample)             \
	X(SLEEPER, sleeper)           \
	X(USER_STACK, user_stack)     \
	X(WAKER, waker)               \
	X(FUNCTIONS, functions)       \
	X(STACK_BEHIND, stack_behind) \
	X(URING_OP, uring_op)         \
	X(URING_SAMPLE, uring_sample) \
	X(URING_LAG, uring_lag)       \
	X(URING_PENDING, uring_pending) \
	X(SUSPECT, suspect)           \
	X(CPU, cpu)                   \
	X(CALL, call)                 \
	X(FILE, file)                 \
	X(SOCKET, socket)             \
	X(ACCEPT_QUEUE, accept_queue) \
	X(CONNECTION, connection)     \
	X(RESPONSE, response)         \
	X(EXCHANGE, exchange)         \
	X(TAIL, tail)                 \
	X(ABANDONED, abandoned)       \
	X(DNS, dns)                   \
	X(NAME, name)                 \
	X(FIELDS, fields)             \
	X(STREAM_NAME, stream_name)   \
	X(SLOW_TASK, slow_task)       \
	X(PUSH, push)

#define TAG(name, layout) RECORD_##name,
enum record_type { RECORD_NONE, RECORDS(TAG) };
#undef TAG

IN_BTF(enum record_type, record_type);

#define LAYOUT(name, layout) IN_BTF(struct layout##_record, layout##_record);
RECORDS(LAYOUT)
#undef LAYOUT

/*
 * One for each CPU. Every reason for losing something has its own. The names are the recording's.
 */
struct counters {
	u64 events; /* tracepoint hits that concerned the target */
	u64 lost_ring_full; /* events ring: record dropped */
	u64 lost_stack_ring_full; /* samples ring: sample dropped */
	u64 lost_thread_storage; /* a thread could not be followed: no memory for its state */
	u64 lost_socket_storage; /* a socket could not be followed */
	/* long waits over the rate that is sent; their time is in the thread's totals */
	u64 lost_wait_budget;
	/*
	 * long intervals without a CPU over the rate that is sent; their time is in the thread's
	 * totals
	 */
	u64 preempted_budget;
	u64 cpu_wait_budget; /* who had the CPU, over the rate that is sent */
	/* slow requests over the rate that is sent one by one; they are in the sums */
	u64 lost_request_budget;
	u64 sleeper_no_stack; /* the stack of a sleeping thread could not be read */
	u64 sleeper_moved; /* it woke while its stack was read: dropped */
	u64 sample_no_stack; /* user stack of a sample could not be read */
	u64 user_stack_unread; /* long sleeps whose user stack could not be asked for or read */
	u64 user_stack_budget; /* long sleeps over the rate at which user stacks are read */
	/* wakes of long sleeps over the rate at which the waker's stack is read */
	u64 waker_stack_budget;
	u64 lost_futexes; /* short sleeps on futex words beyond those that are kept apart */
	u64 lost_rings; /* io_uring instances beyond those that can be followed */
	u64 uring_op_budget; /* operations over the rate that is sent; they are in the sums */
	u64 uring_lag_budget; /* the same of lags */
	u64 uring_pending_budget; /* operations that were still under way, beyond those that are sent */
	/*
	 * long sleeps over the rate at which those of a storm are sent; they are in their object's
	 * sums
	 */
	u64 storm_waits;
	u64 unmatched_wakes; /* a thread came back and no wake had been seen */
	u64 unseen_switches; /* a thread was running that had not been seen getting its CPU */
	u64 lost_calls; /* bursts: the ring was full */
	u64 calls_counted_only; /* bursts: calls beyond those that are recorded */
	u64 lost_socket_cpu; /* a connection found no slot for its CPU time */
	u64 closings; /* responses that were followed by one: see may_be_closing */
	/* requests that came behind something that wanted no answer: see may_begin_later */
	u64 began_later;
	u64 exchange_budget; /* slow exchanges over the rate that is sent; they are in the sums */
	u64 lost_peers; /* connections to peers beyond those that are kept apart */
	u64 tail_budget; /* tails over the rate that is sent; they are in the sums */
	u64 abandoned_budget; /* abandoned requests over the rate that is sent; they are in the sums */
	u64 datagrams_answered; /* questions in datagrams that were answered, … */
	u64 datagrams_unanswered; /* … were not, … */
	u64 datagrams_retried; /* … came again before that, … */
	u64 datagrams_untimed; /* … of which it is not known when they came, … */
	u64 datagrams_by_thread; /* … and of which the thread told which answer is theirs */
	u64 datagrams_unasked; /* what such sockets sent to those who had asked nothing */
	u64 datagrams_dropped; /* what found no room in their queue */
	u64 datagrams_quic; /* read or sent through sockets that speak QUIC, which is not followed */
	u64 streams_connections; /* of HTTP/2 whose streams are followed, … */
	u64 streams_begun; /* … streams that began there, … */
	u64 streams_answered; /* … were answered, … */
	u64 streams_reset; /* … were given up by their client before that, … */
	u64 streams_open; /* … are open in the end, … */
	u64 streams_went_on; /* … went on after their first message, … */
	u64 streams_went_on_ns; /* … for so long, with what came before it, … */
	u64 streams_untimed; /* … of which it is not known when they came, … */
	/* … and of which the end is not known: their connection could not be followed to it */
	u64 streams_unfollowed;
	u64 lost_streams; /* streams beyond those that can be open at the same time */
	u64 lost_stream_connections; /* connections of HTTP/2 beyond those that can be followed */
	/* … and those of which a frame could not be read, or was none */
	u64 streams_lost_place;
	u64 calls_connections; /* of HTTP/2 that the target made, and whose streams are followed, … */
	u64 calls_begun; /* … streams that it began there, … */
	/* … and of which the end is not known: their connection could not be followed to it */
	u64 calls_unfollowed;
	u64 lost_call_streams; /* streams beyond those that can be open at the same time */
	u64 calls_not_followed; /* connections of HTTP/2 beyond those that can be followed */
	/* … and those of which a frame could not be read, or was none */
	u64 calls_lost_place;
	u64 tls_connections; /* in TLS, of which clear text is looked for, … */
	u64 tls_http2; /* … those that carry HTTP/2, … */
	u64 tls_early; /* … reads there before it was known whether there is any, … */
	u64 lost_tls_calls; /* … calls of libraries that could not be remembered, … */
	u64 lost_tls_connections; /* … and those beyond what can be followed */
	u64 jobs_fetches; /* messages that brokers were asked for, and answered, … */
	u64 jobs_waited_ns; /* … after so long, together */
	u64 jobs_calls_behind; /* calls that were sent while one of these was not yet answered */
	u64 jobs_given_up; /* jobs beyond those that are followed at once, or told apart */
	u64 dns_queries; /* over UDP */
	u64 dns_budget; /* late DNS queries over the rate that is sent */
	/* pieces of HTTP/2's fields over the rate that is sent: what they would name has no name */
	u64 fields_budget;
	u64 push_budget; /* slow pushes over the rate that is sent */
	u64 unknown_tails; /* held back, and when they went out is not known */
	u64 stolen_ns; /* threads were on a CPU that stood still, because the host had others run */
};
