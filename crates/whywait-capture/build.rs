//! Compiles the BPF object and generates its skeleton.

use std::{env, path::PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let source = "src/bpf/whywait.bpf.c";
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("whywait.skel.rs");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        panic!("whywait reads system calls from saved registers and knows those of x86-64 only");
    }
    // libbpf-sys brings libbpf's headers and says where they are.
    let headers = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where libbpf's headers are");
    SkeletonBuilder::new()
        .source(source)
        .clang_args([
            "-D__TARGET_ARCH_x86",
            "-mcpu=v3",
            "-Wall",
            "-Werror",
            "-I",
            &headers,
        ])
        .build_and_generate(&out)
        .expect("the BPF object compiles (clang 14 or newer is needed: apt-get install clang)");
    println!("cargo:rerun-if-changed=src/bpf");
}
