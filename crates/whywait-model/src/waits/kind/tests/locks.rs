use super::{D, LOCK, S, check};

#[test]
fn a_file_that_another_thread_has_locked_is_no_io() {
    check(&[
        (
            D,
            "ext4_buffered_write_iter vfs_write __x64_sys_pwrite64",
            "file lock (inode)",
            LOCK,
        ),
        (
            D,
            "ext4_file_write_iter do_iter_readv_writev vfs_writev do_pwritev",
            "file lock (inode)",
            LOCK,
        ),
        (
            D,
            "ext4_file_read_iter do_iter_readv_writev vfs_readv do_preadv",
            "file lock (inode)",
            LOCK,
        ),
        (
            D,
            "xfs_ilock xfs_file_buffered_write vfs_write __x64_sys_pwrite64",
            "file lock (inode)",
            LOCK,
        ),
        (
            D,
            "btrfs_inode_lock btrfs_buffered_write btrfs_do_write_iter vfs_write \
             __x64_sys_pwrite64",
            "file lock (inode)",
            LOCK,
        ),
        (
            D,
            "ext4_da_get_block_prep ext4_block_write_begin ext4_da_write_begin \
             generic_perform_write ext4_buffered_write_iter \
             vfs_write __x64_sys_pwrite64",
            "file lock (inode)",
            LOCK,
        ),
        (D, "do_unlinkat __x64_sys_unlink", "file lock (inode)", LOCK),
        (
            D,
            "do_renameat2 __x64_sys_rename",
            "file lock (inode)",
            LOCK,
        ),
        (
            D,
            "path_openat do_filp_open do_sys_openat2 __x64_sys_openat",
            "file lock (inode)",
            LOCK,
        ),
        (D, "fdget_pos ksys_write", "file lock (position)", LOCK),
        (
            D,
            "xfs_buf_lock xfs_buf_find_lock xfs_buf_get_map xfs_buf_read_map \
             xfs_trans_read_buf_map xfs_read_agi xfs_iunlink \
             xfs_dir_remove_child xfs_remove xfs_vn_unlink vfs_unlink do_unlinkat __x64_sys_unlink",
            "metadata lock",
            LOCK,
        ),
        (
            S,
            "locks_lock_inode_wait __do_sys_flock",
            "file lock (flock)",
            LOCK,
        ),
        (
            S,
            "fcntl_setlk do_fcntl __x64_sys_fcntl",
            "file lock (fcntl)",
            LOCK,
        ),
        (D, "vm_mmap_pgoff ksys_mmap_pgoff", "mmap lock", LOCK),
    ]);
}
