//! Compares the clocks of callers and callees.
//!
//! A server cannot start before its client. Where it seems to, its host's clock is taken to be behind by
//! `server start - client start - (client duration - server duration) / 2`, and that is passed on to what
//! runs below it on the same host. Only for display: raw times are kept.
//!
//! Hosts are told apart by their addresses; those of a campaign also by the instance that reports, while all
//! that the mesh saw has one clock, that of the tool.

use std::net::IpAddr;

use super::{Endpoint, INSTANCE_TAG, ReportedSpan, SpanKind, TraceTree, is_mesh_call};

/// Microseconds to add to the times of each span, in the order of the tree's spans.
///
/// All are zero where the root is missing or there are two, since then nothing says which clock is right.
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
    // A callee of the mesh also cannot start after the answer was given back.
    let is_late = is_mesh_call(client)
        && client.duration_us.and_then(|us| i64::try_from(us).ok()).is_some_and(|us| ahead > us);
    if ahead > 0 && !is_late
        || server.local.is_empty()
        || client.local.is_empty()
        || same_host(server, client)
    {
        return None;
    }
    let us = match (client.duration_us, server.duration_us) {
        // What is left of the client's time was spent half on the way there, half on the way back.
        (Some(client), Some(server)) if client >= server => {
            ahead.checked_sub(i64::try_from((client - server) / 2).ok()?)?
        }
        // One-way, or the client did not wait: all that is known is that the server came later.
        _ => ahead.checked_sub(1)?,
    };
    (us != 0).then_some(Skew { host: server, us })
}

fn has_ip(endpoint: &Endpoint) -> bool {
    endpoint.ipv4.is_some() || endpoint.ipv6.is_some()
}

fn has_host(span: &ReportedSpan) -> bool {
    named_host(span).is_some() || has_ip(&span.local)
}

/// The clock of a span of a campaign.
fn named_host(span: &ReportedSpan) -> Option<&str> {
    if is_mesh_call(span) { Some("mesh") } else { span.tag(INSTANCE_TAG) }
}

/// Whether two spans were timed by the same host.
fn same_host(left: &ReportedSpan, right: &ReportedSpan) -> bool {
    if let (Some(left), Some(right)) = (named_host(left), named_host(right)) {
        return left == right;
    }
    let (left, right) = (&left.local, &right.local);
    let same = |left: Option<IpAddr>, right: Option<IpAddr>| left.is_some() && left == right;
    same(left.ipv6, right.ipv6) || same(left.ipv4, right.ipv4)
}
