//! Back ends that deploy an application: memory, process, docker.
