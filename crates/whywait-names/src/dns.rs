//! What DNS is asked for.

/// `DNS A`: the name of a question by the kind of record that it is for.
pub fn question(kind: u16) -> String {
    format!("DNS {}", record_type(kind).unwrap_or("other records"))
}

/// The usual name of a type of records (RFC 1035 and later); `None`: it is none of the usual ones.
pub fn record_type(kind: u16) -> Option<&'static str> {
    let name = match kind {
        1 => "A",
        2 => "NS",
        5 => "CNAME",
        6 => "SOA",
        12 => "PTR",
        15 => "MX",
        16 => "TXT",
        28 => "AAAA",
        33 => "SRV",
        35 => "NAPTR",
        43 => "DS",
        48 => "DNSKEY",
        52 => "TLSA",
        64 => "SVCB",
        65 => "HTTPS",
        255 => "ANY",
        257 => "CAA",
        _ => return None,
    };
    Some(name)
}
