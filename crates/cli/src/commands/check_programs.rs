//! Checks that the programs and folders of an application exist on this machine.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use faultscope_model::application::TestBody;
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
    let mut without_command = Vec::new();
    for (name, service) in &application.services {
        let versions = service.versions.iter().map(|(version, v)| {
            let directory = v.directory.as_ref().unwrap_or(&service.directory);
            let entrypoint = v.entrypoint.as_ref().or(service.entrypoint.as_ref());
            let mut words =
                entrypoint.into_iter().flatten().chain(v.command.as_ref().unwrap_or(&service.command));
            (format!("{name}, version {version}"), words.next().cloned(), directory)
        });
        let mut words = service.entrypoint.iter().flatten().chain(&service.command);
        let itself = (name.to_string(), words.next().cloned(), &service.directory);
        for (who, program, directory) in [itself].into_iter().chain(versions) {
            match &program {
                None => without_command.push(who),
                Some(program) => found.extend(missing(&project.root, &who, program, directory, &service.env)),
            }
        }
    }
    match without_command.as_slice() {
        [] => {}
        [only] => found.push(format!("{only}: has no `command`, so it runs on Docker only")),
        several => {
            found.push(format!("{}: have no `command`, so they run on Docker only", several.join(", ")))
        }
    }
    if let Some(program) = application.setup.iter().flatten().next() {
        found.extend(missing(&project.root, "setup", program, "", &Default::default()));
    }
    for test in &application.tests {
        if let TestBody::Command(command) | TestBody::Discover { command, .. } = &test.body
            && let Some(program) = command.run.first()
        {
            let who = format!("test `{}`", test.name);
            found.extend(missing(&project.root, &who, program, &command.directory, &command.env));
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
    root: &Path,
    who: &str,
    program: &str,
    directory: &str,
    env: &std::collections::BTreeMap<String, String>,
) -> Option<String> {
    let folder = root.join(directory);
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
        let found = is_program(&folder.join(program));
        return (!found).then(|| format!("{who}: there is no executable file `{program}`"));
    }
    let path = env.get("PATH").map(Into::into).or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let found =
        std::env::split_paths(&path).any(|place: PathBuf| is_program(&folder.join(place).join(program)));
    (!found).then(|| format!("{who}: `{program}` is not installed on this machine"))
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
