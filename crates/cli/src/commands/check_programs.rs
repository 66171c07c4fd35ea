//! Checks that the programs and folders of an application exist on this machine.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use faultscope_model::application::{IsolationChoice, TestBody};
use faultscope_model::mount::MountSource;

use crate::args::PlatformChoice;
use crate::project::Project;

/// Warnings for missing programs and folders, and for services that cannot be started.
pub(super) fn warnings(project: &Project, platform: PlatformChoice) -> Vec<String> {
    let application = &project.application;
    let mut found = project.extra_rights();
    found.extend(missing_mounts(project));
    if platform != PlatformChoice::Process {
        return found;
    }
    let (mut only_images, mut only_built) = (Vec::new(), Vec::new());
    for (name, service) in &application.services {
        let versions = service.versions.iter().map(|(version, v)| {
            let directory = v.directory.as_ref().unwrap_or(&service.directory);
            let entrypoint = v.entrypoint.as_ref().or(service.entrypoint.as_ref());
            let mut words =
                entrypoint.into_iter().flatten().chain(v.command.as_ref().unwrap_or(&service.command));
            let image = v.image.as_ref().or(service.image.as_ref());
            (format!("{name}, version {version}"), words.next().cloned(), directory, image)
        });
        let mut words = service.entrypoint.iter().flatten().chain(&service.command);
        let itself = (name.to_string(), words.next().cloned(), &service.directory, service.image.as_ref());
        for (who, program, directory, image) in [itself].into_iter().chain(versions) {
            match &program {
                None if image.is_some() => only_images.push(who),
                None => only_built.push(who),
                Some(program) => found.extend(missing(project, &who, program, directory, &service.env)),
            }
        }
    }
    if !only_images.is_empty() {
        let (has, runs) = if only_images.len() == 1 { ("has", "it runs") } else { ("have", "they run") };
        found.push(format!("{}: {has} no `command`, so {runs} on Docker only", only_images.join(", ")));
    }
    if !only_built.is_empty() {
        let has = if only_built.len() == 1 { "has" } else { "have" };
        let names = only_built.join(", ");
        found.push(format!(
            "{names}: {has} only `build`, which no platform runs; add a `command` or an `image`"
        ));
    }
    if let Some(program) = application.setup.iter().flatten().next() {
        found.extend(missing(project, "setup", program, "", &Default::default()));
    }
    for test in &application.tests {
        if let TestBody::Command(command) | TestBody::Discover { command, .. } = &test.body
            && let Some(program) = command.run.first()
        {
            let who = format!("test `{}`", test.name);
            found.extend(missing(project, &who, program, &command.directory, &command.env));
        }
    }
    found
}

/// Sources of mounts that are not there; `setup` may still make them.
fn missing_mounts(project: &Project) -> Vec<String> {
    if project.application.setup.is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (name, service) in &project.application.services {
        for mount in &service.mounts {
            if let MountSource::Path(path) = &mount.source
                && !project.root.join(path).exists()
            {
                found.push(format!("{name}: there is no `{path}` to mount at {}", mount.to));
            }
        }
    }
    found
}

fn missing(
    project: &Project,
    who: &str,
    program: &str,
    directory: &str,
    env: &std::collections::BTreeMap<String, String>,
) -> Option<String> {
    let folder = project.root.join(directory);
    if !folder.is_dir() {
        return Some(format!("{who}: there is no folder `{directory}`"));
    }
    // Placeholders are filled in later, so such a program cannot be checked now.
    if program.contains("${") {
        return None;
    }
    // Compose files often give only arguments, for the entry point of the image.
    if program.starts_with('-') {
        return Some(format!(
            "{who}: `command` begins with the option `{program}`; write the program before it, or use --platform docker"
        ));
    }
    if program.contains('/') {
        let path = folder.join(program);
        return match hiding_folder(project, &path) {
            _ if !is_program(&path) => Some(format!("{who}: there is no executable file `{program}`")),
            Some(hidden) => Some(format!(
                "{who}: trials do not see `{hidden}` of this machine, so they have no `{program}`; \
                 put it into the application's folder, or name it under `shared`"
            )),
            None => None,
        };
    }
    let path = env.get("PATH").map(Into::into).or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let found =
        std::env::split_paths(&path).any(|place: PathBuf| is_program(&folder.join(place).join(program)));
    (!found).then(|| format!("{who}: `{program}` is not installed on this machine"))
}

/// The folder of temporary files that hides a program from trials, which have their own.
fn hiding_folder(project: &Project, program: &Path) -> Option<&'static str> {
    const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
    let application = &project.application;
    let is_seen = program.starts_with(&project.root)
        || application.shared.iter().any(|shared| program.starts_with(shared))
        || application.isolation == IsolationChoice::Ports;
    TEMPORARY.into_iter().find(|folder| !is_seen && program.starts_with(folder))
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
