//! What a service may do: at most what Docker allows a container by default. See
//! `docs/design/0029-what-a-service-may-do.md`.

use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Docker's default set without `MKNOD`: there a control group of devices makes that one harmless, and with it alone a
/// service could make a node for the disk of this machine.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::AUDIT_WRITE);

/// Gives up what services may not have, for good and for everything that this process starts. The program gets from
/// the bounding set what it has as root, and an ordinary user gets nothing.
pub(super) fn limit(in_user_namespace: bool) -> io::Result<()> {
    clear_ambient_capability_set()?;
    let sets = capabilities(None)?;
    // Without this right there is nothing to gain either.
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..u64::BITS {
            let capability = CapabilitySet::from_bits_retain(1 << number);
            match capability_is_in_bounding_set(capability) {
                Ok(true) if !KEPT.contains(capability) => remove_capability_from_bounding_set(capability)?,
                Ok(_) => {}
                // The kernel knows no more of them.
                Err(_) => break,
            }
        }
    }
    let kept = if in_user_namespace { CapabilitySet::empty() } else { sets.permitted.intersection(KEPT) };
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    if in_user_namespace {
        // Programs with the setuid bit gain nothing in it anyway, because root is not mapped.
        set_no_new_privs(true)?;
    }
    Ok(())
}

/// Gives up what an agent's user namespace brought, and nothing else.
pub(super) fn keep_own() -> io::Result<()> {
    Ok(clear_ambient_capability_set()?)
}
