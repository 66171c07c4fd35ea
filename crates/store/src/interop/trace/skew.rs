//! Compares the clocks of callers and callees.
//!
//! A server cannot start before its client. Where it seems to, its host's clock is taken to be behind by
//! `server start - client start - (client duration - server duration) / 2`, and that is passed on to what
//! runs below it on the same host. Only for display: raw times are kept.

use std::net::IpAddr;

use faultscope_model::trace::{Endpoint, ReportedSpan, SpanKind};

use super::Tree;

/// Microseconds to add to the times of each span, in the order of the tree's spans.
///
/// All are zero where the root is missing or there are two, since then nothing says which clock is right.
pub fn corrections(tree: &Tree) -> Vec<i64> {
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
            if same_host(skew.host, &span.local) {
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
            out[index] = out[index].saturating_sub(if has_ip(&span.local) { skew.us } else { 0 });
        }
        let below = own.or(from_above);
        stack.extend(node.children.iter().map(|child| (*child, below)));
    }
    out
}

/// How much a host's clock is behind, as a negative number.
#[derive(Debug, Clone, Copy)]
struct Skew<'a> {
    host: &'a Endpoint,
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
    if ahead > 0
        || server.local.is_empty()
        || client.local.is_empty()
        || same_host(&server.local, &client.local)
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
    (us != 0).then_some(Skew { host: &server.local, us })
}

fn has_ip(endpoint: &Endpoint) -> bool {
    endpoint.ipv4.is_some() || endpoint.ipv6.is_some()
}

/// Whether two endpoints have an address in common.
fn same_host(left: &Endpoint, right: &Endpoint) -> bool {
    let same = |left: Option<IpAddr>, right: Option<IpAddr>| left.is_some() && left == right;
    same(left.ipv6, right.ipv6) || same(left.ipv4, right.ipv4)
}
