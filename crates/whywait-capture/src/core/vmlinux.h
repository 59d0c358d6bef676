/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The kernel types that whywait reads, trimmed to the fields it reads. Every access is relocated at
 * load time (CO-RE), so that neither offsets nor the order of fields matter, only their names. The
 * full header of a running kernel, to check a name or to add a field:
 *
 *     bpftool btf dump file /sys/kernel/btf/vmlinux format c
 *
 * Integers are declared unsigned, whatever the kernel has: where a kernel made a field narrower,
 * libbpf narrows the load of an unsigned one and refuses that of a signed one. Where the sign
 * matters, tests/headers.rs says why.
 */
#pragma once

/* So that bpf_tracing.h takes the kernel's names of registers. */
#define __VMLINUX_H__

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u8 u8;
typedef __u16 u16;
typedef __s32 s32;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false = 0, true = 1 };

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum {
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_F_CLONE = 1U << 9,
	BPF_F_MMAPABLE = 1U << 10,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1U << 0,
	BPF_SK_STORAGE_GET_F_CREATE = 1U << 0,
	BPF_RB_NO_WAKEUP = 1U << 0,
	BPF_RB_FORCE_WAKEUP = 1U << 1,
	BPF_RB_AVAIL_DATA = 0,
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
};

/* include/linux/sched.h; of the flags, threads that never leave the kernel */
#define TASK_INTERRUPTIBLE 1
#define TASK_UNINTERRUPTIBLE 2
#define TASK_STATES 0xf /* these, stopped and traced */
#define PF_EXITING 0x4
#define PF_IO_WORKER 0x10
#define PF_USER_WORKER 0x4000
#define PF_KTHREAD 0x200000

/* include/linux/sched/signal.h: the process ends, or was killed */
#define SIGNAL_GROUP_EXIT 4

/* include/linux/socket.h, include/linux/net.h, include/uapi/linux/in.h */
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_MPTCP 262

/* include/net/tcp_states.h, include/net/sock.h */
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_FIN_WAIT1 4
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_LAST_ACK 9
#define TCP_LISTEN 10
#define RCV_SHUTDOWN 1
#define SHUTDOWN_MASK 3

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_x86)
#define EPOLL_PACKED __attribute__((packed))

struct pt_regs {
	unsigned long r15, r14, bp, bx, r8, ax, cx, dx, si, di, r10, orig_ax, ip, sp;
};

struct thread_struct {
	unsigned long sp;
	unsigned long fsbase;
};
#elif defined(__TARGET_ARCH_arm64)
#define EPOLL_PACKED

struct pt_regs {
	__u32 syscallno; /* all ones: in no system call */
};

struct user_pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
};

struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
};

struct thread_info {
	struct {
		__u32 count;
	} preempt;
};
#endif

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct epoll_filefd {
	struct file *file;
	unsigned int fd;
} __attribute__((packed));

struct epoll_event {
	__u32 events;
	__u64 data;
} EPOLL_PACKED;

struct eventpoll;

struct epitem {
	struct epoll_filefd ffd;
	struct eventpoll *ep;
	struct hlist_node fllink;
	struct epoll_event event;
};

struct inode {
	unsigned short i_mode;
};

struct file_operations;

struct file {
	void *private_data;
	const struct file_operations *f_op;
	struct inode *f_inode;
	struct hlist_head *f_ep;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct rq;
struct bpf_local_storage;

struct cfs_rq {
	struct rq *rq;
	unsigned int throttle_count;
};

struct sched_entity {
	u64 sum_exec_runtime;
	u64 prev_sum_exec_runtime;
	struct cfs_rq *cfs_rq;
};

struct upid {
	unsigned int nr;
};

struct pid {
	struct upid numbers[1];
};

struct signal_struct {
	unsigned int flags;
};

struct mm_struct {
	unsigned long start_code, end_code;
	unsigned long start_stack;
};

struct task_io_accounting {
	u64 syscr;
};

struct task_struct {
#if defined(__TARGET_ARCH_arm64)
	struct thread_info thread_info;
#endif
	unsigned int __state;
	void *stack;
	unsigned int flags;
	unsigned int on_cpu;
	unsigned int on_rq;
	unsigned in_iowait : 1;
	unsigned int pid;
	unsigned int tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	struct files_struct *files;
	struct sched_entity se;
	struct task_io_accounting ioac;
	struct mm_struct *mm;
	struct thread_struct thread;
	char comm[16];
};

struct socket {
	unsigned short type;
	struct file *file;
	struct sock *sk;
};

typedef struct {
	unsigned int counter;
} atomic_t;

typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

typedef struct {
	u64 counter;
} atomic64_t;

/* The first and the last of the ports that the kernel gives itself: the lower half is the first. */
struct local_ports {
	u32 range;
};

/* Before Linux 6.8. */
struct local_ports___seqlock {
	unsigned int range[2];
};

struct netns_ipv4 {
	struct local_ports ip_local_ports;
};

struct net {
	struct netns_ipv4 ipv4;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	refcount_t skc_refcnt;
	atomic64_t skc_cookie;
	__u16 skc_num;
	__be16 skc_dport;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	unsigned char skc_reuseport : 1;
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	possible_net_t skc_net;
};

struct sock;

struct sk_buff {
	struct sk_buff *next;
	struct sk_buff *prev;
	struct sock *sk;
	unsigned int len;
	unsigned int data_len; /* of that: not where `data` is */
	__be16 protocol;
	__u16 transport_header; /* from `head` on */
	__u16 network_header;
	unsigned char *head;
	unsigned char *data;
};

struct sk_buff_head {
	struct sk_buff *next;
	struct sk_buff *prev;
	__u32 qlen;
};

struct udphdr {
	__be16 source;
};

struct iphdr {
	__be32 saddr;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	atomic_t sk_drops;
	__u32 sk_ack_backlog;
	__u32 sk_max_ack_backlog;
	__u32 sk_wmem_queued;
	unsigned int sk_sndbuf;
	__u8 sk_userlocks : 4; /* of a byte with others, or one of its own */
	__u8 sk_shutdown;
	__u32 sk_err;
	__u16 sk_type;
	__u16 sk_protocol;
	struct socket *sk_socket;
	struct bpf_local_storage *sk_bpf_storage;
	struct pid *sk_peer_pid;
};

/* Since Linux 6.18. */
struct numa_drop_counters {
	atomic_t drops0;
	atomic_t drops1;
};

struct udp_sock {
	struct sk_buff_head reader_queue;
	struct numa_drop_counters drop_counters;
};

/* A socket of Multipath TCP: the one of TCP below it (net/mptcp/protocol.h). */
struct mptcp_sock {
	struct sock *first;
};

/* The smallest values of a time (include/linux/win_minmax.h). */
struct minmax_sample {
	u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

/* What a connection knows of when its last packet came, and of how much is to be read. */
struct tcp_sock {
	__u64 tcp_clock_cache;
	__u64 tcp_mstamp; /* microseconds */
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 write_seq; /* so much was written, … */
	__u32 snd_una; /* … and the peer has it up to here */
	__u32 snd_nxt; /* so much was sent */
	__u32 snd_wnd; /* the peer has room for so much beyond `snd_una` */
	__u32 snd_cwnd; /* so many packets may be on their way, … */
	__u32 packets_out; /* … and are */
	__u32 mss_cache; /* the size of a full segment */
	__u8 nonagle : 4;
	__u8 chrono_type : 2; /* what it is limited by (enum tcp_chrono), … */
	__u32 chrono_start; /* … since then, … */
	__u32 chrono_stat[3]; /* … and was before, in jiffies */
	__u32 dsack_dups; /* packets that the peer had already */
	struct {
		__u64 mstamp; /* when what was acknowledged last was sent, in microseconds */
	} rack;
	__u32 lsndtime; /* data was sent last, in jiffies */
	__u64 bytes_received;
	__u64 bytes_sent;
	__u64 bytes_acked;
	__u32 srtt_us; /* eight times that */
	__u32 total_retrans;
	struct minmax rtt_min;
};

struct inet_connection_sock {
	__u8 icsk_ca_state : 5; /* enum tcp_ca_state */
	struct {
		__u32 lrcvtime; /* data came last, in jiffies */
	} icsk_ack;
	struct {
		__u8 rskq_defer_accept; /* TCP_DEFER_ACCEPT, in retransmissions */
	} icsk_accept_queue;
};

/* What a hypervisor took from a CPU, in nanoseconds (arch/x86/include/uapi/asm/kvm_para.h). */
struct kvm_steal_time {
	__u64 steal;
};

struct sockaddr_un {
	unsigned short sun_family;
	char sun_path[108];
};

struct unix_address {
	unsigned int len;
	struct sockaddr_un name[];
};

struct unix_sock {
	struct unix_address *addr;
	struct sock *peer;
};

struct io_uring {
	u32 head;
	u32 tail;
};

struct io_rings {
	struct io_uring sq, cq;
	u32 sq_ring_entries;
	atomic_t sq_flags;
};

struct percpu_ref {
	unsigned long percpu_count_ptr;
};

struct io_ring_ctx {
	unsigned int flags;
	struct percpu_ref refs;
	struct io_rings *rings;
	unsigned int cached_sq_head;
	unsigned int sq_entries;
	unsigned int cached_cq_tail;
	unsigned int cq_entries;
};

struct io_cqe {
	s32 res;
	union {
		u32 flags;
		u32 fd;
	};
};

struct io_kiocb {
	struct file *file;
	u8 opcode;
	u64 flags;
	struct io_cqe cqe;
	struct io_ring_ctx *ctx;
};

struct seq_file;

/* Whole, not only declared: the kernel's functions are told apart by their prototypes. */
struct bpf_map {
	u32 id;
};

#pragma clang attribute pop

/* What belongs to the interface of BPF's iterators and of io_uring, so nothing is relocated: to look
 * for a type in the kernel's BTF takes a millisecond of each start. */
struct io_uring_cqe {
	u64 user_data;
	s32 res;
	u32 flags;
};

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id;
	u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	/* Nobody looks at it: as a pointer to a map it would leave that type declared only. */
	void *map;
	struct sock *sk;
	void *value;
};

struct bpf_perf_event_data;

/* include/uapi/linux/bpf.h, from Linux 6.18 on */
struct bpf_task_work {
	__u64 __opaque;
} __attribute__((aligned(8)));
typedef int (*bpf_task_work_callback_t)(struct bpf_map *map, void *key, void *value);

