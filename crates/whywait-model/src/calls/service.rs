//! What usually listens at a port.

/// By port.
const SERVICES: &[(u16, &str)] = &[
    (25, "SMTP"),
    (53, "DNS"),
    (80, "HTTP"),
    (389, "LDAP"),
    (443, "HTTPS"),
    (587, "SMTP"),
    (636, "LDAPS"),
    (1433, "SQL Server"),
    (1521, "Oracle"),
    (1883, "MQTT"),
    (2049, "NFS"),
    (2181, "ZooKeeper"),
    (2379, "etcd"),
    (3306, "MySQL"),
    (4222, "NATS"),
    (4317, "OTLP"),
    (5432, "PostgreSQL"),
    (5672, "AMQP"),
    (6379, "Redis"),
    (6432, "PgBouncer"),
    (8123, "ClickHouse"),
    (8500, "Consul"),
    (9042, "Cassandra"),
    (9092, "Kafka"),
    (9200, "Elasticsearch"),
    (11211, "memcached"),
    (27017, "MongoDB"),
];

/// What usually listens there; `None` for ports that are nobody's.
pub(super) fn service(port: u16) -> Option<&'static str> {
    let at = SERVICES.binary_search_by_key(&port, |(port, _)| *port);
    at.ok().map(|at| SERVICES[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_found_by_port() {
        assert!(SERVICES.is_sorted_by_key(|(port, _)| *port));
        assert_eq!(service(5432), Some("PostgreSQL"));
        assert_eq!(service(7001), None);
    }
}
