//! Which keys of a Compose service mean something here.

use crate::import::node::{Map, Node};

/// Keys that are read here or nearby.
const READ: &[&str] = &[
    "build",
    "command",
    "container_name",
    "cpus",
    "depends_on",
    "deploy",
    "entrypoint",
    "env_file",
    "environment",
    "expose",
    "extra_hosts",
    "healthcheck",
    "hostname",
    "image",
    "links",
    "mem_limit",
    "network_mode",
    "networks",
    "pids_limit",
    "ports",
    "profiles",
    "scale",
    "secrets",
    "configs",
    "stop_grace_period",
    "stop_signal",
    "tmpfs",
    "user",
    "volumes",
    "working_dir",
];

/// Keys that say nothing about what the service does.
const HARMLESS: &[&str] = &[
    "annotations",
    "attach",
    "develop",
    "domainname",
    "init",
    "label_file",
    "labels",
    "logging",
    "platform",
    "pull_policy",
    "pull_refresh_after",
    "restart",
    "security_opt",
    "stdin_open",
    "tty",
];

/// Keys that may matter to the service and have no counterpart.
const LOST: &[&str] = &[
    "blkio_config",
    "cap_add",
    "cap_drop",
    "cgroup",
    "cgroup_parent",
    "cpu_count",
    "cpu_percent",
    "cpu_period",
    "cpu_quota",
    "cpu_rt_period",
    "cpu_rt_runtime",
    "cpu_shares",
    "cpuset",
    "credential_spec",
    "device_cgroup_rules",
    "devices",
    "dns",
    "dns_opt",
    "dns_search",
    "external_links",
    "gpus",
    "group_add",
    "ipc",
    "isolation",
    "mac_address",
    "mem_reservation",
    "mem_swappiness",
    "memswap_limit",
    "models",
    "oom_kill_disable",
    "oom_score_adj",
    "pid",
    "post_start",
    "pre_stop",
    "privileged",
    "provider",
    "read_only",
    "runtime",
    "shm_size",
    "storage_opt",
    "sysctls",
    "ulimits",
    "use_api_socket",
    "userns_mode",
    "uts",
    "volumes_from",
];

/// The keys of a service that are lost, and those that Compose does not have.
pub(super) fn find_losses(service: &Node) -> (Vec<&str>, Vec<&str>) {
    let keys = || service.as_map().into_iter().flat_map(Map::keys).map(String::as_str);
    let lost = keys().filter(|key| LOST.contains(key)).collect();
    let is_known = |key: &str| [READ, HARMLESS, LOST].iter().any(|table| table.contains(&key));
    let unknown = keys().filter(|key| !is_known(key) && !key.starts_with("x-")).collect();
    (lost, unknown)
}
