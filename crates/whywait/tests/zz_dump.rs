#[test]
fn dump() {
    let r = whywait_events::recording::Recording::open(std::path::Path::new("/tmp/rt-robust/ur"))
        .unwrap();
    let s = r.stacks().unwrap();
    r.waits(None, &mut |w| {
        println!(
            "{} {} out {} in {:?} sys {:?} us {} ks {} {:?}",
            w.tid,
            w.seq,
            w.out_ns,
            w.in_ns,
            w.syscall,
            w.user_stack,
            w.kernel_stack,
            s.named(w.user_stack)
                .flat_map(|f| f.names.iter().map(|n| n.name.to_string()))
                .collect::<Vec<_>>()
        )
    })
    .unwrap();
    println!(
        "{:?}",
        r.counters()
            .unwrap()
            .iter()
            .filter(|(n, v)| **v > 0
                && (n.starts_with("stacks") || n.starts_with("lost") || n.starts_with("waits")))
            .collect::<Vec<_>>()
    );
    println!("{:?}", s.modules().collect::<Vec<_>>());
}
