//! Waits for memory: it is short, or a page of it is not there yet.

use whywait_events::Part;

use crate::waits::kind::rules::FAULT_MMAP;
use crate::waits::kind::{Rule, lock, on};

/// Memory is short. What it delays is the page fault or the call that wants memory; which of them,
/// the stack shows.
pub(super) const MEMORY: &[Rule] = &[
    on(
        &[
            "mem_cgroup_handle_over_high",
            "__mem_cgroup_handle_over_high",
        ],
        "memory throttling (cgroup)",
        Part::PageFault,
    ),
    on(
        &[
            "mem_cgroup_oom_synchronize",
            "mem_cgroup_out_of_memory",
            "out_of_memory",
        ],
        "out of memory",
        Part::PageFault,
    ),
    on(
        &["try_to_free_mem_cgroup_pages"],
        "memory reclaim (cgroup)",
        Part::PageFault,
    ),
    on(
        &[
            "try_to_free_pages",
            "throttle_direct_reclaim",
            "reclaim_throttle",
            "__alloc_pages_direct_reclaim",
            "shrink_node",
            "shrink_lruvec",
        ],
        "memory reclaim",
        Part::PageFault,
    ),
    on(
        &["try_to_compact_pages", "__alloc_pages_direct_compact"],
        "memory compaction",
        Part::PageFault,
    ),
    on(
        &[
            "do_swap_page",
            "swap_readpage",
            "swap_read_folio",
            "swapin_readahead",
            "shmem_swapin_folio",
        ],
        "swap in",
        Part::PageFault,
    ),
];

/// Taken in user mode, or in a call that touches the program's memory. Whatever it waits for, it is
/// a page fault to the program.
const FAULT: &[&str] = &[
    "asm_exc_page_fault",
    "exc_page_fault",
    "do_user_addr_fault",
    "do_page_fault",
    "handle_mm_fault",
    "__handle_mm_fault",
    "faultin_page",
    // arm64
    "do_mem_abort",
];

pub(super) const PAGE_FAULT: &[Rule] = &[
    // As a guest: the host fetches the page.
    on(
        &["kvm_async_pf_task_wait_schedule", "__kvm_handle_async_pf"],
        "page fault (in the host)",
        Part::PageFault,
    ),
    on(
        &["handle_userfault"],
        "page fault (userfaultfd)",
        Part::PageFault,
    ),
    // A thread that maps or unmaps memory, or forks, has the address space.
    lock(
        &[
            "lock_mm_and_find_vma",
            "get_mmap_lock_carefully",
            "do_user_addr_fault",
            "exc_page_fault",
            "do_page_fault",
            "mmap_read_lock",
            "lock_vma_under_rcu",
        ],
        FAULT_MMAP,
    )
    .under(FAULT),
    on(
        &["balance_dirty_pages*", "fault_dirty_shared_page"],
        "page fault (dirty page throttling)",
        Part::PageFault,
    )
    .under(FAULT),
    on(
        &[
            "migration_entry_wait*",
            "do_numa_page",
            "do_huge_pmd_numa_page",
        ],
        "page fault (page migration)",
        Part::PageFault,
    )
    .under(FAULT),
    on(
        &["do_page_mkwrite", "*_page_mkwrite"],
        "page fault (write to a mapped file)",
        Part::PageFault,
    )
    .under(FAULT),
    on(
        &["fuse_*", "request_wait_answer"],
        "page fault (FUSE)",
        Part::PageFault,
    )
    .under(FAULT),
    on(
        &["nfs_*", "rpc_wait_bit_killable"],
        "page fault (NFS)",
        Part::PageFault,
    )
    .under(FAULT),
    on(
        &[
            "filemap_fault",
            "*_filemap_fault",
            "__folio_lock_or_retry",
            "filemap_map_pages",
            "shmem_fault",
        ],
        "page fault (file read)",
        Part::PageFault,
    )
    .under(FAULT),
    on(FAULT, "page fault", Part::PageFault),
];
