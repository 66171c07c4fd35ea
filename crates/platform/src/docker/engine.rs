//! The container engine: the few requests that are sent to it, and how its errors are classified.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error;
use bollard::models::{
    ContainerCreateBody, ContainerStatsResponse, Ipam, IpamConfig, NetworkCreateRequest, VolumeCreateRequest,
};
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptions, CreateImageOptions, EventsOptions, ListContainersOptions,
    ListNetworksOptions, ListVolumesOptions, RemoveContainerOptions, RemoveVolumeOptions, StatsOptions,
    StopContainerOptions, WaitContainerOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::addresses::Subnet;
use super::{NAME, bad_plan, trouble};
use crate::process::parts::this_owner;
use crate::{PlatformError, PlatformErrorKind};

/// How long the engine may take for one response.
const PATIENCE: Duration = Duration::from_secs(60);
/// The socket of the engine unless `DOCKER_HOST` is set.
const SOCKET: &str = "/var/run/docker.sock";

/// The label that names a slot.
pub(super) const SLOT: &str = "faultscope.slot";
/// The label that names the tool that created something.
pub(super) const OWNER: &str = "faultscope.owner";
/// The label that names an instance.
pub(super) const INSTANCE: &str = "faultscope.instance";

/// The output of a container as it is printed.
pub(super) type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>;

/// A connection to the engine.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    docker: Docker,
}

/// How a container ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) out_of_memory: bool,
}

/// Something with labels: its name and its owner.
#[derive(Debug)]
pub(super) struct Labelled {
    pub(super) name: String,
    pub(super) owner: String,
}

impl Engine {
    /// Connects and negotiates the API version.
    pub(super) async fn connect(host: Option<&str>) -> Result<Self, PlatformError> {
        let host = host.map(str::to_owned).or_else(|| std::env::var("DOCKER_HOST").ok());
        let host = host.unwrap_or_else(|| format!("unix://{SOCKET}"));
        let unavailable = |source: Box<dyn std::error::Error + Send + Sync>| {
            PlatformError::new(PlatformErrorKind::Unavailable, NAME, format!("reach the engine at {host}"))
                .because(source)
        };
        let Some(path) = host.strip_prefix("unix://") else {
            return Err(unavailable(
                "only an engine on this machine, behind a Unix socket, can share sockets with the tool"
                    .into(),
            ));
        };
        let docker = Docker::connect_with_unix(path, PATIENCE.as_secs(), API_DEFAULT_VERSION)
            .map_err(|e| unavailable(e.into()))?;
        let docker = docker.negotiate_version().await.map_err(|e| unavailable(e.into()))?;
        Ok(Self { docker })
    }

    /// The client of the engine.
    pub(super) fn docker(&self) -> &Docker {
        &self.docker
    }

    /// Creates a container.
    pub(super) async fn create(&self, name: &str, body: ContainerCreateBody) -> Result<String, Error> {
        let options = CreateContainerOptions { name: Some(name.to_owned()), ..Default::default() };
        Ok(self.docker.create_container(Some(options), body).await?.id)
    }

    /// The output of the container from now on; attached before it starts, nothing is missed.
    pub(super) async fn attach(&self, container: &str) -> Result<Output, Error> {
        let options =
            AttachContainerOptions { stream: true, stdout: true, stderr: true, ..Default::default() };
        Ok(self.docker.attach_container(container, Some(options)).await?.output)
    }

    pub(super) async fn start(&self, container: &str) -> Result<(), Error> {
        self.docker.start_container(container, None).await
    }

    /// Sends SIGTERM, and SIGKILL after `patience`.
    pub(super) async fn stop(&self, container: &str, patience: Duration) {
        let seconds = i32::try_from(patience.as_millis().div_ceil(1000)).unwrap_or(i32::MAX);
        let options = StopContainerOptions { t: Some(seconds), ..Default::default() };
        if let Err(error) = self.docker.stop_container(container, Some(options)).await {
            tracing::debug!(container, %error, "cannot stop");
        }
    }

    /// Kills and removes a container; one that does not exist is fine.
    pub(super) async fn remove(&self, container: &str) -> Result<(), Error> {
        let options = RemoveContainerOptions { force: true, v: true, ..Default::default() };
        match self.docker.remove_container(container, Some(options)).await {
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
            // Someone else is removing it; that counts once it is gone.
            Err(Error::DockerResponseServerError { status_code: 409, .. }) => {
                self.gone(container).await;
                Ok(())
            }
            other => other,
        }
    }

    pub(super) async fn pause(&self, container: &str, pause: bool) -> Result<(), Error> {
        if pause {
            self.docker.pause_container(container).await
        } else {
            self.docker.unpause_container(container).await
        }
    }

    /// Waits for a started container to end. `None` if it was removed or the engine is gone.
    pub(super) async fn ended(&self, container: &str) -> Option<Ended> {
        let options = WaitContainerOptions { condition: "not-running".into() };
        let waited = self.docker.wait_container(container, Some(options)).next().await;
        let status = match waited? {
            Ok(response) => response.status_code,
            Err(Error::DockerContainerWaitError { code, .. }) => code,
            Err(_) => return None,
        };
        let state = self.docker.inspect_container(container, None).await.ok()?.state;
        let out_of_memory = state.and_then(|s| s.oom_killed).unwrap_or(false);
        let status = i32::try_from(status).unwrap_or(-1);
        // The engine reports 128 + n for signal n, as a shell does.
        let signal = (129..=159).contains(&status).then(|| status - 128);
        Some(Ended { code: signal.is_none().then_some(status), signal, out_of_memory })
    }

    /// A handle of the main process of a container, if it is a process of this machine as the tool sees it.
    pub(super) async fn process(&self, container: &str) -> Option<OwnedFd> {
        let state = self.docker.inspect_container(container, None).await.ok()?.state?;
        let pid = Pid::from_raw(i32::try_from(state.pid?).ok()?)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // The engine may count process ids differently; the control group names the container.
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        groups.contains(container).then_some(process)
    }

    async fn gone(&self, container: &str) {
        let options = WaitContainerOptions { condition: "removed".into() };
        let mut removed = self.docker.wait_container(container, Some(options));
        let _ = tokio::time::timeout(PATIENCE, removed.next()).await;
    }

    /// The resource usage of a container.
    pub(super) async fn stats(&self, container: &str) -> Option<ContainerStatsResponse> {
        let options = StatsOptions { stream: false, one_shot: true };
        self.docker.stats(container, Some(options)).next().await?.ok()
    }

    /// Names of containers of a slot in which memory ran out, as it happens.
    pub(super) fn out_of_memory(&self, slot: &str) -> impl Stream<Item = String> + Send + use<> {
        let filters = HashMap::from([
            ("type".to_owned(), vec!["container".to_owned()]),
            ("event".to_owned(), vec!["oom".to_owned()]),
            ("label".to_owned(), vec![format!("{SLOT}={slot}")]),
        ]);
        let options = EventsOptions { filters: Some(filters), ..Default::default() };
        let docker = self.docker.clone();
        docker.events(Some(options)).filter_map(|event| async { event.ok()?.actor?.id }).boxed()
    }

    /// The working directory of an image.
    pub(super) async fn working_directory(&self, image: &str) -> Result<String, Error> {
        let inspected = self.docker.inspect_image(image).await?;
        let directory = inspected.config.and_then(|c| c.working_dir).unwrap_or_default();
        Ok(if directory.is_empty() { "/".into() } else { directory })
    }

    pub(super) async fn has_image(&self, image: &str) -> bool {
        self.docker.inspect_image(image).await.is_ok()
    }

    /// Creates an image from an archive of its files.
    pub(super) async fn import(&self, name: &str, tag: &str, archive: Vec<u8>) -> Result<(), Error> {
        let options = CreateImageOptions {
            from_src: Some("-".into()),
            repo: Some(name.to_owned()),
            tag: Some(tag.to_owned()),
            ..Default::default()
        };
        let body = bollard::body_full(Bytes::from(archive));
        let mut progress = std::pin::pin!(self.docker.create_image(Some(options), Some(body), None));
        while let Some(step) = progress.next().await {
            step?;
        }
        Ok(())
    }

    /// Creates an internal network. `false` if its addresses are taken.
    pub(super) async fn make_network(&self, name: &str, slot: &str, subnet: Subnet) -> Result<bool, Error> {
        let config = IpamConfig { subnet: Some(subnet.text()), ..Default::default() };
        // Newer engines then assign no address to the host either; older ones ignore the option.
        let isolated = ("com.docker.network.bridge.gateway_mode_ipv4", "isolated");
        let request = NetworkCreateRequest {
            name: name.to_owned(),
            driver: Some("bridge".into()),
            internal: Some(true),
            ipam: Some(Ipam { config: Some(vec![config]), ..Default::default() }),
            options: Some(HashMap::from([(isolated.0.to_owned(), isolated.1.to_owned())])),
            labels: Some(labels(slot, None)),
            ..Default::default()
        };
        match self.docker.create_network(request).await {
            Ok(_) => Ok(true),
            Err(Error::DockerResponseServerError { message, .. }) if message.contains("overlap") => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn remove_network(&self, name: &str) -> Result<(), Error> {
        match self.docker.remove_network(name).await {
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
            other => other,
        }
    }

    pub(super) async fn make_volume(&self, name: &str, slot: &str) -> Result<(), Error> {
        let request = VolumeCreateRequest {
            name: Some(name.to_owned()),
            labels: Some(labels(slot, None)),
            ..Default::default()
        };
        self.docker.create_volume(request).await.map(|_| ())
    }

    pub(super) async fn remove_volume(&self, name: &str) -> Result<(), Error> {
        match self.docker.remove_volume(name, None::<RemoveVolumeOptions>).await {
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
            other => other,
        }
    }

    /// Containers with a label, running or not.
    pub(super) async fn containers(&self, label: &str) -> Result<Vec<Labelled>, Error> {
        let options =
            ListContainersOptions { all: true, filters: Some(with_label(label)), ..Default::default() };
        let found = self.docker.list_containers(Some(options)).await?;
        Ok(found.into_iter().filter_map(|c| labelled(c.id, c.labels)).collect())
    }

    /// Networks with a label.
    pub(super) async fn networks(&self, label: &str) -> Result<Vec<Labelled>, Error> {
        let options = ListNetworksOptions { filters: Some(with_label(label)) };
        let found = self.docker.list_networks(Some(options)).await?;
        Ok(found.into_iter().filter_map(|n| labelled(n.name, n.labels)).collect())
    }

    /// Volumes with a label.
    pub(super) async fn volumes(&self, label: &str) -> Result<Vec<Labelled>, Error> {
        let options = ListVolumesOptions { filters: Some(with_label(label)) };
        let found = self.docker.list_volumes(Some(options)).await?.volumes;
        Ok(found.into_iter().flatten().filter_map(|v| labelled(Some(v.name), Some(v.labels))).collect())
    }

    /// Starts a command in a running container.
    pub(super) async fn exec(
        &self,
        container: &str,
        config: bollard::models::ExecConfig,
    ) -> Result<(String, Output), Error> {
        let id = self.docker.create_exec(container, config).await?.id;
        match self.docker.start_exec(&id, None).await? {
            bollard::exec::StartExecResults::Attached { output, .. } => Ok((id, output)),
            bollard::exec::StartExecResults::Detached => Ok((id, futures_util::stream::empty().boxed())),
        }
    }

    /// The exit code of a command in a container.
    pub(super) async fn exec_code(&self, id: &str) -> Result<Option<i32>, Error> {
        let code = self.docker.inspect_exec(id).await?.exit_code;
        Ok(code.and_then(|code| i32::try_from(code).ok()))
    }
}

/// The labels of everything that belongs to a slot.
pub(super) fn labels(slot: &str, instance: Option<&str>) -> HashMap<String, String> {
    let mut labels = HashMap::from([(SLOT.to_owned(), slot.to_owned()), (OWNER.to_owned(), this_owner())]);
    labels.extend(instance.map(|name| (INSTANCE.to_owned(), name.to_owned())));
    labels
}

/// Converts an error of the engine; its text shows whether the plan is to blame.
pub(super) fn fault(action: impl Into<String>, error: Error) -> PlatformError {
    const OF_THE_PLAN: [&str; 5] = [
        "No such image",
        "executable file not found",
        "no such file or directory",
        "permission denied",
        "is a directory",
    ];
    match &error {
        Error::DockerResponseServerError { status_code, message }
            if *status_code == 400 || OF_THE_PLAN.iter().any(|text| message.contains(text)) =>
        {
            bad_plan(action, error)
        }
        _ => trouble(action, error),
    }
}

/// An error of the engine as an I/O error.
pub(super) fn as_io(error: Error) -> io::Error {
    io::Error::other(error)
}

fn with_label(label: &str) -> HashMap<String, Vec<String>> {
    HashMap::from([("label".to_owned(), vec![label.to_owned()])])
}

fn labelled(name: Option<String>, labels: Option<HashMap<String, String>>) -> Option<Labelled> {
    let owner = labels?.remove(OWNER)?;
    Some(Labelled { name: name?, owner })
}
