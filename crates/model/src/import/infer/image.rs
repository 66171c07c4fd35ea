//! What is known about public images: the ports that they listen on, and which of them collect traces.

/// Images and the ports that their callers use.
const PORTS: &[(&[&str], &[u16])] = &[
    (&["nginx", "nginx-unprivileged", "openresty", "httpd", "caddy", "haproxy", "traefik"], &[80]),
    (&["wordpress", "phpmyadmin", "nextcloud", "drupal", "joomla", "matomo", "ghost-apache"], &[80]),
    (&["tomcat", "jetty", "jenkins", "keycloak", "wildfly", "adminer", "schema-registry-ui"], &[8080]),
    (&["zookeeper", "cp-zookeeper"], &[2181]),
    (&["elasticsearch", "elasticsearch-oss", "opensearch"], &[9200]),
    (&["kibana", "kibana-oss", "opensearch-dashboards"], &[5601]),
    (&["logstash", "logstash-oss"], &[5044]),
    (&["prometheus"], &[9090]),
    (&["alertmanager"], &[9093]),
    (&["pushgateway"], &[9091]),
    (&["grafana", "grafana-oss", "grafana-enterprise"], &[3000]),
    (&["loki"], &[3100]),
    (&["tempo"], &[3200, 4317, 4318]),
    (&["minio"], &[9000]),
    (&["vault"], &[8200]),
    (&["consul"], &[8500]),
    (&["solr"], &[8983]),
    (&["neo4j"], &[7687, 7474]),
    (&["influxdb"], &[8086]),
    (&["couchbase", "couchbase-server"], &[8091]),
    (&["couchdb"], &[5984]),
    (&["rethinkdb"], &[28015]),
    (&["dynamodb-local"], &[8000]),
    (&["localstack"], &[4566]),
    (&["wiremock"], &[8080]),
    (&["mailhog", "mailpit"], &[1025, 8025]),
    (&["selenium-hub", "standalone-chrome", "standalone-firefox"], &[4444]),
    (&["mongo-express", "redis-commander"], &[8081]),
    (&["pgadmin4"], &[80]),
    (&["registry"], &[5000]),
    (&["sonarqube"], &[9000]),
    (&["cp-schema-registry"], &[8081]),
    (&["cp-kafka-rest"], &[8082]),
    (&["cp-kafka-connect", "connect"], &[8083]),
    (&["kafka-ui", "kafdrop"], &[8080]),
    (&["hasura", "graphql-engine"], &[8080]),
    (&["flagd"], &[8013]),
    (&["azurite"], &[10000, 10001, 10002]),
    (&["cosmos-db", "azure-cosmos-emulator"], &[8081]),
    (&["seq"], &[80, 5341]),
    (&["node-exporter"], &[9100]),
    (&["cadvisor"], &[8080]),
    (&["mysqld-exporter"], &[9104]),
    (&["redis_exporter", "redis-exporter"], &[9121]),
    (&["dapr", "placement"], &[50005]),
    (&["temporal", "auto-setup"], &[7233]),
    (&["eureka", "eureka-server"], &[8761]),
    (&["nacos-server", "nacos"], &[8848]),
    (&["guacd"], &[4822]),
    (&["meilisearch"], &[7700]),
    (&["typesense"], &[8108]),
    (&["weaviate", "qdrant-ui"], &[8080]),
    (&["gotenberg"], &[3000]),
    (&["tika"], &[9998]),
    (&["symbolicator"], &[3021]),
    (&["tikv"], &[20160]),
    (&["pd"], &[2379]),
    (&["tidb"], &[4000]),
    (&["smtp", "exim4", "postfix", "exim-relay"], &[25]),
    (&["unbound", "bind9", "dnscrypt-proxy", "coredns"], &[53]),
];

/// Databases and brokers: whatever else is declared, their clients use this port.
const SERVERS: &[(&[&str], &[u16])] = &[
    (&["redis", "redis-stack", "redis-stack-server", "valkey", "keydb", "dragonfly"], &[6379]),
    (&["postgres", "postgresql", "postgis", "timescaledb", "timescaledb-ha", "pgvector"], &[5432]),
    (&["cockroach"], &[26257]),
    (&["mysql", "mysql-server", "mariadb", "percona", "percona-server"], &[3306]),
    (&["mongo", "mongodb", "mongodb-community-server"], &[27017]),
    (&["mssql-server", "server", "azure-sql-edge"], &[1433]),
    (&["rabbitmq"], &[5672]),
    (&["activemq", "activemq-artemis", "artemis"], &[61616]),
    (&["nats", "nats-streaming"], &[4222]),
    (&["kafka", "cp-kafka", "kafka-native", "redpanda", "cp-server"], &[9092]),
    (&["pulsar", "pulsar-all"], &[6650]),
    (&["memcached"], &[11211]),
    (&["etcd"], &[2379]),
    (&["cassandra", "scylla"], &[9042]),
    (&["clickhouse", "clickhouse-server"], &[8123, 9000]),
    (&["eclipse-mosquitto", "mosquitto", "emqx", "vernemq"], &[1883]),
    (&["openldap", "ldap"], &[389]),
    (&["pgbouncer"], &[5432]),
    (&["oracle", "oracle-free", "oracle-xe"], &[1521]),
    (&["qdrant"], &[6333]),
    (&["milvus"], &[19530]),
];

/// What collects traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::import) enum TraceBackend {
    Zipkin,
    Jaeger,
    OtelCollector,
}

impl TraceBackend {
    /// Its name, for people.
    pub(in crate::import) fn label(self) -> &'static str {
        match self {
            Self::Zipkin => "Zipkin",
            Self::Jaeger => "Jaeger",
            Self::OtelCollector => "an OpenTelemetry collector",
        }
    }

    fn ports(self) -> &'static [u16] {
        match self {
            Self::Zipkin => &[9411],
            Self::Jaeger => &[16686, 4317, 4318, 14268, 9411],
            Self::OtelCollector => &[4317, 4318],
        }
    }
}

/// The ports of a public image that its callers use, and whether they are in use whatever else is declared.
pub(super) fn known_ports(image: &str) -> Option<(&'static [u16], bool)> {
    if let Some(backend) = trace_backend(image) {
        return Some((backend.ports(), false));
    }
    let (owner, name) = split_image(image);
    // Everybody calls something `server`; only Microsoft's is SQL Server.
    if name == "server" && !owner.ends_with("mssql") {
        return None;
    }
    // `php:8-apache` and `php:8-fpm` differ only in their tags.
    if name == "php" {
        let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
        return match (tag.contains("apache"), tag.contains("fpm")) {
            (true, _) => Some((&[80], false)),
            (_, true) => Some((&[9000], false)),
            _ => None,
        };
    }
    let find = |table: &'static [(&[&str], &[u16])]| {
        table.iter().find(|(names, _)| names.contains(&name.as_str())).map(|(_, ports)| *ports)
    };
    find(SERVERS).map(|ports| (ports, true)).or_else(|| find(PORTS).map(|ports| (ports, false)))
}

/// What an image collects traces as.
pub(in crate::import) fn trace_backend(image: &str) -> Option<TraceBackend> {
    let (owner, name) = split_image(image);
    if name == "zipkin" || name == "zipkin-slim" {
        return Some(TraceBackend::Zipkin);
    }
    if matches!(name.as_str(), "jaeger" | "jaeger-all-in-one" | "jaeger-collector")
        || (owner.ends_with("jaegertracing")
            && matches!(name.as_str(), "all-in-one" | "opentelemetry-all-in-one"))
    {
        return Some(TraceBackend::Jaeger);
    }
    name.starts_with("opentelemetry-collector").then_some(TraceBackend::OtelCollector)
}

/// Owner and name of an image, without registry, tag and digest, in lower case.
fn split_image(image: &str) -> (String, String) {
    let image = image.split('@').next().unwrap_or(image).to_ascii_lowercase();
    let (owner, name) = image.rsplit_once('/').unwrap_or(("", &image));
    let name = name.split(':').next().unwrap_or(name);
    (owner.to_owned(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_behind_registries_tags_and_digests() {
        for (image, expected) in [
            ("redis", Some(&[6379_u16][..])),
            ("redis:7-alpine", Some(&[6379])),
            ("registry.example:5000/team/redis@sha256:00ff", Some(&[6379])),
            ("docker.io/bitnami/postgresql:16", Some(&[5432])),
            ("mcr.microsoft.com/mssql/server:2022-latest", Some(&[1433])),
            ("corp/server", None),
            ("corp/redis-exporter-of-ours", None),
            ("php:8.2-apache", Some(&[80])),
            ("php:8.2-fpm-alpine", Some(&[9000])),
            ("php:8.2-cli", None),
            ("jaegertracing/all-in-one:1.60", Some(&[16686, 4317, 4318, 14268, 9411])),
            ("corp/all-in-one", None),
            (
                "ghcr.io/open-telemetry/opentelemetry-collector-releases/opentelemetry-collector-contrib:1",
                Some(&[4317, 4318]),
            ),
            ("", None),
        ] {
            assert_eq!(known_ports(image).map(|(ports, _)| ports), expected, "{image}");
        }
    }
}
