//! Reads what protocol buffers hold, as far as tests ask.

/// The parts of a message that have a length, by their field's number. Fails where it is none.
pub(crate) fn parts(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        match key & 7 {
            0 => _ = varint(&mut bytes),
            1 => bytes = &bytes[8..],
            2 => {
                let length = varint(&mut bytes) as usize;
                let (part, rest) = bytes.split_at(length);
                found.push((key >> 3, part));
                bytes = rest;
            }
            other => panic!("wire type {other}"),
        }
    }
    found
}

/// The texts that a path of fields leads to.
pub(crate) fn texts(message: &[u8], path: &[u64]) -> Vec<String> {
    let (field, rest) = path.split_first().expect("a field");
    let parts = parts(message).into_iter();
    let parts = parts.filter(|(number, _)| number == field);
    parts
        .flat_map(|(_, part)| match rest {
            [] => vec![String::from_utf8(part.to_vec()).expect("a text")],
            rest => texts(part, rest),
        })
        .collect()
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a number ends");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}
