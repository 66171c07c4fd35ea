//! Estimates how far the clocks of callers and callees differ.
//!
//! A server cannot start before its client. Where it seems to, the clock of its host is taken to be behind by
//! `server start - client start - (client duration - server duration) / 2`, and the same correction is applied to all
//! spans below it on the same host. Corrections are only displayed; stored times are never changed.
//!
//! Hosts are told apart by their addresses. What the mesh saw, and what instances of a campaign report, was timed by
//! one machine, the one that the tool runs on: there is nothing to correct between them.

use std::net::IpAddr;

use super::{Endpoint, INSTANCE_TAG, ReportedSpan, SpanKind, TraceTree, is_mesh_call};

/// The correction of each span in microseconds, in the order of the tree's spans.
///
/// All are zero if the root is missing or not unique, since then nothing shows which clock is right.
pub fn clock_corrections(tree: &TraceTree) -> Vec<i64> {
    let mut out = vec![0; tree.spans.len()];
    let Some(root) = tree.root.filter(|root| tree.span(*root).is_some()) else { return out };
    let second_root =
        |node: &usize| tree.span(*node).is_some_and(|span| span.parent.is_none() && !span.shared);
    if tree.nodes[root].children.iter().any(second_root) {
        return out;
    }
    let mut stack: Vec<(usize, Option<Skew<'_>>)> = vec![(root, None)];
    while let Some((at, from_above)) = stack.pop() {
        let node = &tree.nodes[at];
        let Some(index) = node.span else { continue };
        let span = &tree.spans[index];
        let mut shift = |skew: &Skew<'_>| {
            if same_host(skew.host, span) {
                out[index] = i64::saturating_sub(out[index], skew.us);
            }
        };
        if let Some(skew) = &from_above {
            shift(skew);
        }
        let parent = node.parent.and_then(|parent| tree.nodes[parent].span);
        let own = parent.and_then(|parent| {
            let client = (&tree.spans[parent], out[parent]);
            find_skew(client, (span, out[index]))
        });
        if let Some(skew) = &own {
            out[index] = out[index].saturating_sub(if has_host(span) { skew.us } else { 0 });
        }
        let below = own.or(from_above);
        stack.extend(node.children.iter().map(|child| (*child, below)));
    }
    out
}

/// How much a host's clock is behind, as a negative number.
#[derive(Debug, Clone, Copy)]
struct Skew<'a> {
    host: &'a ReportedSpan,
    us: i64,
}

fn find_skew<'a>(client: (&ReportedSpan, i64), server: (&'a ReportedSpan, i64)) -> Option<Skew<'a>> {
    let ((client, client_shift), (server, server_shift)) = (client, server);
    if client.kind != Some(SpanKind::Client) || server.kind != Some(SpanKind::Server) {
        return None;
    }
    let start = |span: &ReportedSpan, shift: i64| {
        span.start_us.and_then(|us| i64::try_from(us).ok()).map(|us| us.saturating_add(shift))
    };
    let ahead = start(server, server_shift)?.checked_sub(start(client, client_shift)?)?;
    if ahead > 0 || server.local.is_empty() || client.local.is_empty() || same_host(server, client) {
        return None;
    }
    let us = match (client.duration_us, server.duration_us) {
        // Assume that the rest of the client's time was spent in equal parts on the way there and back.
        (Some(client), Some(server)) if client >= server => {
            ahead.checked_sub(i64::try_from((client - server) / 2).ok()?)?
        }
        // One-way, or the client did not wait: it is only certain that the server started later.
        _ => ahead.checked_sub(1)?,
    };
    (us != 0).then_some(Skew { host: server, us })
}

fn has_ip(endpoint: &Endpoint) -> bool {
    endpoint.ipv4.is_some() || endpoint.ipv6.is_some()
}

fn has_host(span: &ReportedSpan) -> bool {
    is_of_campaign(span) || has_ip(&span.local)
}

/// Whether a span was timed by the machine that the tool runs on.
fn is_of_campaign(span: &ReportedSpan) -> bool {
    is_mesh_call(span) || span.tag(INSTANCE_TAG).is_some()
}

/// Whether two spans were timed by the same host.
fn same_host(left: &ReportedSpan, right: &ReportedSpan) -> bool {
    if is_of_campaign(left) && is_of_campaign(right) {
        return true;
    }
    let (left, right) = (&left.local, &right.local);
    let same = |left: Option<IpAddr>, right: Option<IpAddr>| left.is_some() && left == right;
    same(left.ipv6, right.ipv6) || same(left.ipv4, right.ipv4)
}
