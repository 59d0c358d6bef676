/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/* Where the runtime of a process keeps the task for which a thread works, and tasks of requests. */
#pragma once

#include "core/layout.h"

/* So many processes are known at a time, and so many threads of Python's. */
#define MAX_RUNTIMES 4096
#define MAX_PYTHON_THREADS 16384

/* PHP and an old Python have frames of functions, and no coroutines that are told apart. */
enum runtime_kind { RUNTIME_GO = 1, RUNTIME_PYTHON, RUNTIME_INTERPRETED };
IN_BTF(enum runtime_kind, runtime_kind);

/*
 * How the last frame of a call of an interpreter's loop is known: by bits of a byte (`last_mask`);
 * by the byte that says whose it is, as it is the C function's that called the loop and has no
 * function; or each is.
 */
enum last_frame { LAST_BY_FLAG, LAST_IS_SHIM, LAST_IS_EACH };
IN_BTF(enum last_frame, last_frame);

struct runtime {
	u32 kind;
	/*
	 * Python, offsets: in a thread's state the innermost frame, or what has it at the second
	 * offset and 1 (0: none does); in a frame the one outside of it, and who owns it.
	 */
	u32 current;
	u32 current_in_cframe;
	u32 previous;
	u32 owner;
	/*
	 * In a frame also: its code object, its instruction, and a byte that says whether it is the
	 * last one of its call of the interpreter's loop (`last_by`: enum last_frame).
	 */
	u32 code_object;
	u32 instruction;
	u32 last;
	u32 last_mask;
	u32 last_by;
	/*
	 * Where a thread's own data have the address of its state, from the thread pointer on (0: not
	 * known), and where the state has the thread pointer.
	 */
	u32 own_state;
	u32 thread_pointer;
	u64 state; /* or there is one, at this address, of the process's first thread; 0: not so */
	/* Go's code in memory: it keeps the goroutine in R14, from 1.17 on, and C code does not. */
	u64 code;
	u64 code_bytes;
};
IN_BTF(struct runtime, runtime);

/* A slow request that is under way, of a process whose tasks can be looked at. */
struct slow_task_record {
	u32 type;
	u32 tgid;
	u64 task; /* the goroutine that has read it; 0: it is Python, and all tasks are looked at */
	u64 socket;
	/* A stream of HTTP/2: its connection, whose goroutine reads all streams; 0: it is none. */
	u64 connection;
	u32 seq;
	u32 pad;
};
