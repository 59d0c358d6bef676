//! The generated skeleton of the BPF object: its maps, programs, options and record layouts.
//!
//! Generated code: it casts the memory-mapped sections of the object, hence its `unsafe`.
#![allow(unsafe_code, unreachable_pub, missing_docs, clippy::all, dead_code)]

include!(concat!(env!("OUT_DIR"), "/whywait.skel.rs"));
