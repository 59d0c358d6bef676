//! Compiles the BPF object, and generates what Rust has of it: the skeleton (maps, programs,
//! variables and layouts) and the records.

mod records;

use std::path::{Path, PathBuf};
use std::{env, fs};

use libbpf_cargo::SkeletonBuilder;
use libbpf_rs::btf::Btf;

fn main() {
    let source = "src/core/whywait.bpf.c";
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let target = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let registers = match target.as_str() {
        "x86_64" => "-D__TARGET_ARCH_x86",
        "aarch64" => "-D__TARGET_ARCH_arm64",
        _ => panic!("whywait knows the registers of x86-64 and arm64 only"),
    };
    // libbpf-sys brings libbpf's headers and says where they are.
    let headers = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where libbpf's headers are");
    let object = out.join("whywait.bpf.o");
    SkeletonBuilder::new()
        .source(source)
        .obj(&object)
        .clang_args([
            registers, "-mcpu=v3", "-Wall", "-Werror", "-I", "src", "-I", &headers,
        ])
        .build_and_generate(out.join("whywait.skel.rs"))
        .expect("the BPF object compiles (clang 14 or newer is needed: apt-get install clang)");
    let skeleton = out.join("whywait.skel.rs");
    let code = fs::read_to_string(&skeleton).expect("it was written");
    fs::write(&skeleton, of_any_object(code)).expect("OUT_DIR is writable");
    let btf = Btf::from_path(&object).expect("clang writes BTF into the object");
    fs::write(out.join("records.rs"), records::generate(&btf)).expect("OUT_DIR is writable");
    rerun_if_changed(Path::new("src"));
}

/// The skeleton takes one object; this has its builder take another of the same layout. See
/// `src/core/functions.rs`.
fn of_any_object(mut code: String) -> String {
    for (old, new) in [
        ("static DATA: [u8;", "pub static DATA: [u8;"),
        (
            "fn build_skel_config()",
            "fn build_skel_config(data: &'static [u8])",
        ),
        ("ConfigBuilder::new(&DATA)", "ConfigBuilder::new(data)"),
        (
            "build_skel_config()?",
            "build_skel_config(self.data.unwrap_or(&DATA))?",
        ),
        (
            "pub obj_builder: libbpf_rs::ObjectBuilder,",
            "pub obj_builder: libbpf_rs::ObjectBuilder, pub data: Option<&'static [u8]>,",
        ),
    ] {
        let found = code.matches(old).count();
        assert_eq!(
            found, 1,
            "libbpf-cargo's skeleton has {found} times {old:?}"
        );
        code = code.replace(old, new);
    }
    code
}

/// Each C file by itself, so that no change of Rust code compiles the object again.
fn rerun_if_changed(dir: &Path) {
    for entry in fs::read_dir(dir).expect("the sources are readable") {
        let path = entry.expect("the sources are readable").path();
        if path.is_dir() {
            rerun_if_changed(&path);
        } else if path.extension().is_some_and(|end| end == "h" || end == "c") {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    println!("cargo:rerun-if-changed=build");
}
