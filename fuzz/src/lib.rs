//! What fuzz targets share.

use std::panic;

/// Has only panics in code of the project end the process. Of what it calls for unwind tables and
/// Parquet (framehop, parquet) some panic on bad input: that is caught where it is called.
pub fn only_ours_end_it() {
    let end = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let file = panic.location().map_or("", |place| place.file());
        if file.contains("whywait") {
            end(panic);
        }
    }));
}
