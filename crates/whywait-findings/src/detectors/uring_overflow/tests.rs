use whywait_events::uring::Ring;

use crate::shared::rings::script::*;

#[test]
fn completions_that_found_no_room() {
    let overflown = Ring {
        overflows: 500,
        ..ring()
    };
    assert_eq!(codes(&script(overflown, sum(READ))), ["uring-overflow"]);
}
