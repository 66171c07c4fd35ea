//! Lists the running containers of a Compose project, to capture its circumstance. Read-only.

use std::collections::{BTreeMap, HashMap};

use bollard::query_parameters::ListContainersOptions;
use faultscope_model::capture::Container;

use super::engine::{Engine, fault};
use super::{DockerOptions, DockerPlatform};
use crate::PlatformError;

/// The label that Compose gives to the containers of a project.
const PROJECT: &str = "com.docker.compose.project";
/// The label that names the service.
const SERVICE: &str = "com.docker.compose.service";
/// The label of containers that `docker compose run` started.
const ONE_OFF: &str = "com.docker.compose.oneoff";
/// More containers than this are not one project; each costs a request to the engine.
const MOST: usize = 2_000;

impl DockerPlatform {
    /// The running containers of a Compose project, and the names of all projects if it has none.
    pub async fn project(
        options: &DockerOptions,
        project: &str,
    ) -> Result<Result<Vec<Container>, Vec<String>>, PlatformError> {
        let engine = Engine::connect(options.host.as_deref()).await?;
        let found =
            engine.project(project).await.map_err(|e| fault(format!("list the project {project}"), e))?;
        if !found.is_empty() {
            return Ok(Ok(found));
        }
        let projects = engine.projects().await.map_err(|e| fault("list projects", e))?;
        Ok(Err(projects))
    }
}

impl Engine {
    async fn project(&self, project: &str) -> Result<Vec<Container>, bollard::errors::Error> {
        let mut containers = Vec::new();
        for summary in self.running(&format!("{PROJECT}={project}")).await?.into_iter().take(MOST) {
            let labels = summary.labels.unwrap_or_default();
            if labels.get(ONE_OFF).is_some_and(|v| v.eq_ignore_ascii_case("true")) {
                continue;
            }
            let (Some(service), Some(id)) = (labels.get(SERVICE), summary.id) else { continue };
            let inspected = self.docker().inspect_container(&id, None).await?;
            let config = inspected.config.unwrap_or_default();
            let limits = inspected.host_config.unwrap_or_default();
            let own = match &inspected.image {
                Some(image) => self.docker().inspect_image(image).await.ok(),
                None => None,
            };
            // Variables of the image are not settings of the project.
            let brought = env(own.and_then(|image| image.config).and_then(|c| c.env));
            let mut set = env(config.env);
            set.retain(|key, value| brought.get(key) != Some(value));
            let positive = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
            let quota = positive(limits.cpu_quota)
                .map(|quota| quota as f64 / positive(limits.cpu_period).unwrap_or(100_000) as f64);
            containers.push(Container {
                service: service.clone(),
                image: config.image.unwrap_or_default(),
                env: set,
                memory: positive(limits.memory),
                cpu: positive(limits.nano_cpus).map(|nano| nano as f64 / 1e9).or(quota),
                pids: positive(limits.pids_limit).and_then(|n| u32::try_from(n).ok()),
            });
        }
        containers.sort_by(|a, b| a.service.cmp(&b.service));
        Ok(containers)
    }

    async fn projects(&self) -> Result<Vec<String>, bollard::errors::Error> {
        let running = self.running(PROJECT).await?;
        let mut names: Vec<String> =
            running.into_iter().filter_map(|c| c.labels?.get(PROJECT).cloned()).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    async fn running(
        &self,
        label: &str,
    ) -> Result<Vec<bollard::models::ContainerSummary>, bollard::errors::Error> {
        let filters = HashMap::from([("label".to_owned(), vec![label.to_owned()])]);
        let options = ListContainersOptions { filters: Some(filters), ..Default::default() };
        self.docker().list_containers(Some(options)).await
    }
}

fn env(list: Option<Vec<String>>) -> BTreeMap<String, String> {
    let pair = |text: String| text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    list.into_iter().flatten().filter_map(pair).collect()
}
