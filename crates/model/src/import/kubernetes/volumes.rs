//! Volumes of pods: what containers see at paths of their own.

use super::config::{Configs, Data, read_field};
use super::objects::Object;
use super::pods::{containers, read_quantity};
use crate::import::mounts::{
    ImportedMount, ImportedSource, Mounts, own_volume_name, parse_mode, volume_name,
};
use crate::import::node::{Map, Node};
use crate::import::warnings::Warnings;

/// Mounts that meshes and clusters add to every container.
const OF_THE_CLUSTER: [&str; 2] = ["serviceAccountToken", "clusterTrustBundle"];

/// The volumes of one pod, for the container that becomes a service.
pub(super) struct Volumes<'o> {
    pub(super) workload: &'o Object,
    pub(super) pod: &'o Node,
    pub(super) configs: &'o Configs,
    pub(super) service: &'o str,
}

/// A file of a volume.
struct File {
    /// Relative to where the volume is mounted.
    path: String,
    /// None if the value is no text.
    text: Option<String>,
    mode: Option<u32>,
}

impl Volumes<'_> {
    /// Everything that a container sees at paths of its own.
    pub(super) fn find_mounts(&self, container: &Node, warnings: &mut Warnings) -> Vec<ImportedMount> {
        let mut mounts = Mounts::new(self.service, warnings);
        for mount in container.get("volumeMounts").and_then(Node::as_list).unwrap_or_default() {
            let (Some(name), Some(path)) = (mount.get_text("name"), mount.get_text("mountPath")) else {
                continue;
            };
            self.add_mount(name, path, mount, &mut mounts);
        }
        mounts.list
    }

    fn add_mount(&self, name: &str, path: &str, mount: &Node, mounts: &mut Mounts<'_>) {
        let readonly = mount.get_text("readOnly") == Some("true");
        let sub_path = mount.get_text("subPath").unwrap_or_default().trim_matches('/');
        if mount.get("subPathExpr").is_some() {
            mounts.warn(format!("`subPathExpr` of the mount at `{path}` is not carried over"));
        }
        let Some(volume) = self.find_volume(name) else {
            if self.is_claim_template(name) {
                return mounts.add(
                    path,
                    ImportedSource::Volume(own_volume_name(&sub_name(name, sub_path))),
                    readonly,
                );
            }
            return mounts.warn(format!("the pod has no volume `{name}` to mount at `{path}`"));
        };
        if let Some(folder) = volume.get("hostPath").and_then(|source| source.get_text("path")) {
            return mounts.add_outside(folder, path, readonly);
        }
        if let Some(claim) =
            volume.get("persistentVolumeClaim").and_then(|source| source.get_text("claimName"))
        {
            let name = volume_name(&sub_name(claim, sub_path));
            return mounts.add(path, ImportedSource::Volume(name), readonly);
        }
        if volume.get("ephemeral").is_some() {
            return mounts.add(
                path,
                ImportedSource::Volume(own_volume_name(&sub_name(name, sub_path))),
                readonly,
            );
        }
        // An empty mapping is what most files have here, and `get` takes an empty value for none.
        if let Some(source) = volume.as_map().and_then(|map| map.get("emptyDir")) {
            return mounts.add(path, self.empty_folder(name, source, sub_path), readonly);
        }
        let Some(files) = self.find_files(volume, path, mounts) else { return };
        self.add_files(files, path, sub_path, mounts);
    }

    fn add_files(&self, files: Vec<File>, path: &str, sub_path: &str, mounts: &mut Mounts<'_>) {
        let mut n_files = 0;
        for file in files {
            let below = if sub_path.is_empty() {
                Some(file.path.as_str())
            } else if file.path == sub_path {
                Some("")
            } else {
                file.path.strip_prefix(sub_path).and_then(|rest| rest.strip_prefix('/'))
            };
            let Some(below) = below else { continue };
            let to = if below.is_empty() {
                path.to_owned()
            } else {
                format!("{}/{below}", path.trim_end_matches('/'))
            };
            n_files += 1;
            match file.text {
                // Kubernetes never lets a container write there.
                Some(text) => mounts.add_with_mode(&to, ImportedSource::Content(text), true, file.mode),
                None => mounts.warn(format!("`{to}` is no text; put it into a file and mount that")),
            }
        }
        if n_files == 0 && !sub_path.is_empty() {
            mounts.warn(format!("`{sub_path}` is not among the files for `{path}`"));
        }
    }

    fn find_volume(&self, name: &str) -> Option<&Node> {
        let volumes = self.pod.get("spec")?.get("volumes")?.as_list()?;
        volumes.iter().find(|volume| volume.get_text("name") == Some(name))
    }

    fn is_claim_template(&self, name: &str) -> bool {
        let templates =
            self.workload.spec().and_then(|spec| spec.get("volumeClaimTemplates")).and_then(Node::as_list);
        let has_name =
            |template: &Node| template.get("metadata").and_then(|m| m.get_text("name")) == Some(name);
        templates.unwrap_or_default().iter().any(has_name)
    }

    /// A folder that lives as long as its pod: in memory, of one container, or shared by several.
    fn empty_folder(&self, name: &str, source: &Node, sub_path: &str) -> ImportedSource {
        if source.get_text("medium") == Some("Memory") {
            let size = source.get_text("sizeLimit").and_then(read_quantity).filter(|bytes| *bytes < 1e18);
            return ImportedSource::Tmpfs(size.map(|bytes| bytes as u64));
        }
        let uses = |container: &&Node| {
            let mounts = container.get("volumeMounts").and_then(Node::as_list).unwrap_or_default();
            mounts.iter().any(|mount| mount.get_text("name") == Some(name))
        };
        let n_users = containers(self.pod).iter().filter(|container| uses(container)).count();
        let name = sub_name(name, sub_path);
        ImportedSource::Volume(if n_users > 1 {
            volume_name(&format!("{}-{name}", self.workload.name))
        } else {
            own_volume_name(&name)
        })
    }

    /// The files of a volume that the manifests hold; none after a warning.
    fn find_files(&self, volume: &Node, path: &str, mounts: &mut Mounts<'_>) -> Option<Vec<File>> {
        if let Some(projected) = volume.get("projected") {
            let default_mode = projected.get_text("defaultMode");
            let sources = projected.get("sources").and_then(Node::as_list).unwrap_or_default();
            let files = sources
                .iter()
                .filter_map(|source| self.find_source_files(source, default_mode, path, mounts));
            return Some(files.flatten().collect());
        }
        self.find_source_files(volume, None, path, mounts)
    }

    fn find_source_files(
        &self,
        volume: &Node,
        default_mode: Option<&str>,
        path: &str,
        mounts: &mut Mounts<'_>,
    ) -> Option<Vec<File>> {
        for (key, kind) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
            let Some(source) = volume.get(key) else { continue };
            // A projected Secret has a `name` like a ConfigMap.
            let name = source.get_text("secretName").or_else(|| source.get_text("name")).unwrap_or_default();
            let Some(data) = self.configs.get(kind, &self.workload.namespace, name) else {
                if source.get_text("optional") != Some("true") {
                    mounts.warn(format!("{kind} `{name}` is not in the manifests, so `{path}` is missing"));
                }
                return None;
            };
            let default_mode = source.get_text("defaultMode").or(default_mode);
            return Some(read_data_files(source, name, data, default_mode, mounts));
        }
        if let Some(source) = volume.get("downwardAPI") {
            return Some(self.read_pod_files(source, path, mounts));
        }
        if !OF_THE_CLUSTER.iter().any(|key| volume.get(key).is_some()) {
            let kinds = volume.as_map().into_iter().flat_map(Map::keys).filter(|key| *key != "name");
            let kind = kinds.map(String::as_str).next().unwrap_or("volume").to_owned();
            mounts.warn(format!("the {kind} at `{path}` is not mounted"));
        }
        None
    }

    /// Files with fields of the pod.
    fn read_pod_files(&self, source: &Node, path: &str, mounts: &mut Mounts<'_>) -> Vec<File> {
        let mut files = Vec::new();
        for item in source.get("items").and_then(Node::as_list).unwrap_or_default() {
            let Some(file) = item.get_text("path") else { continue };
            let field = item.get("fieldRef");
            let text = field.and_then(|field| {
                read_field(field, self.workload, self.service).or_else(|| self.read_pairs(field))
            });
            match text {
                Some(text) => files.push(File { path: file.to_owned(), text: Some(text), mode: None }),
                None => {
                    mounts.warn(format!("`{path}/{file}` holds what only a cluster knows; it is left out"))
                }
            }
        }
        files
    }

    /// Labels or annotations of the pod, as Kubernetes writes them into a file.
    fn read_pairs(&self, field: &Node) -> Option<String> {
        let key = field.get_text("fieldPath")?.strip_prefix("metadata.")?;
        let map = self.pod.get("metadata")?.get(key)?.as_map()?;
        let lines = map.iter().filter_map(|(key, value)| Some(format!("{key}={:?}\n", value.as_text()?)));
        Some(lines.collect())
    }
}

/// The files of a ConfigMap or a Secret: all of its entries, or those that `items` chooses.
fn read_data_files(
    source: &Node,
    name: &str,
    data: &Data,
    default_mode: Option<&str>,
    mounts: &mut Mounts<'_>,
) -> Vec<File> {
    let mode = default_mode.and_then(parse_mode);
    let chosen: Vec<(String, String, Option<u32>)> = match source.get("items").and_then(Node::as_list) {
        Some(items) => items
            .iter()
            .filter_map(|item| {
                let key = item.get_text("key")?.to_owned();
                let path = item.get_text("path")?.trim_start_matches('/').to_owned();
                Some((key, path, item.get_text("mode").and_then(parse_mode).or(mode)))
            })
            .collect(),
        None => data.texts.keys().chain(&data.binary).map(|key| (key.clone(), key.clone(), mode)).collect(),
    };
    let mut files = Vec::new();
    for (key, path, mode) in chosen {
        let text = data.texts.get(&key).cloned();
        if text.is_some() || data.binary.contains(&key) {
            files.push(File { path, text, mode });
        } else {
            mounts.warn(format!("`{name}` has no `{key}` to mount"));
        }
    }
    files
}

fn sub_name(name: &str, sub_path: &str) -> String {
    if sub_path.is_empty() { name.to_owned() } else { format!("{name}-{sub_path}") }
}
