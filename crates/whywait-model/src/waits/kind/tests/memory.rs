use whywait_events::Part;

use super::{D, FAULT, IO, LOCK, check};

#[test]
fn a_page_fault_is_one_whatever_it_waits_for() {
    let fault = "__handle_mm_fault handle_mm_fault exc_page_fault asm_exc_page_fault";
    let under = |functions: &str| format!("{functions} {fault}");
    check(&[
        (
            IO,
            &under("folio_wait_bit_common filemap_fault __do_fault do_fault"),
            "page fault (file read)",
            FAULT,
        ),
        // In a system call that reads the program's memory.
        (
            IO,
            &format!(
                "{} fault_in_readable ext4_buffered_write_iter vfs_write ksys_write",
                under("folio_wait_bit_common filemap_fault __do_fault do_fault")
            ),
            "page fault (file read)",
            FAULT,
        ),
        (
            IO,
            &under("__folio_lock block_page_mkwrite ext4_page_mkwrite do_page_mkwrite do_wp_page"),
            "page fault (write to a mapped file)",
            FAULT,
        ),
        (
            IO,
            &under(
                "balance_dirty_pages balance_dirty_pages_ratelimited_flags \
                 fault_dirty_shared_page do_fault",
            ),
            "page fault (dirty page throttling)",
            FAULT,
        ),
        (
            IO,
            &under(
                "__folio_lock shmem_swapin_folio shmem_get_folio_gfp shmem_fault __do_fault \
                 do_fault",
            ),
            "swap in",
            FAULT,
        ),
        (
            IO,
            &under(
                "folio_wait_bit folio_wait_writeback shrink_folio_list shrink_lruvec shrink_node \
                 do_try_to_free_pages \
                 try_to_free_mem_cgroup_pages try_charge_memcg charge_memcg \
                 mem_cgroup_swapin_charge_folio __read_swap_cache_async \
                 swap_cluster_readahead shmem_swapin_folio shmem_get_folio_gfp shmem_fault \
                 __do_fault do_fault",
            ),
            "memory reclaim (cgroup)",
            FAULT,
        ),
        (
            D,
            "reclaim_throttle shrink_lruvec shrink_node do_try_to_free_pages \
             try_to_free_mem_cgroup_pages try_charge_memcg charge_memcg \
             __mem_cgroup_charge filemap_add_folio page_cache_ra_unbounded \
             filemap_readahead.isra.0 filemap_get_pages filemap_read vfs_read",
            "memory reclaim (cgroup)",
            FAULT,
        ),
        (
            D,
            &under(
                "reclaim_throttle shrink_node do_try_to_free_pages try_to_free_pages \
                 __alloc_pages_slowpath",
            ),
            "memory reclaim",
            FAULT,
        ),
        (
            D,
            "lock_mm_and_find_vma exc_page_fault asm_exc_page_fault",
            "page fault (mmap lock)",
            LOCK,
        ),
        // What whywait itself does in the thread.
        (
            D,
            "lock_mm_and_find_vma exc_page_fault asm_exc_page_fault _copy_from_user \
             bpf_copy_from_user \
             bpf_prog_c29632ea8989c5b8_leave_user_stack bpf_task_work_callback task_work_run \
             exit_to_user_mode_loop",
            "being measured",
            Some(Part::Unknown),
        ),
    ]);
}
