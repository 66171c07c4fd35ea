//! How YAML from outside is parsed: bounded, but generous where people are.

/// The most replayed events of all aliases together. Without a bound, ten lines can stand for gigabytes.
const MAX_REPLAYED: usize = 200_000;

/// The most comment lines between two values; license texts and commented-out services are long.
const MAX_COMMENTS: usize = 20_000;

/// The options for reading a YAML text of at most `bytes` bytes, nested at most `depth` deep.
pub(crate) fn parse_options(bytes: usize, depth: usize, documents: usize) -> serde_saphyr::Options {
    serde_saphyr::options! {
        with_snippet: false,
        // Only `true` and `false`, as YAML 1.2 has it and Compose reads it: `state: NO` is a text.
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_depth: depth,
            max_nodes: 200_000,
            max_events: 1_000_000,
            max_documents: documents,
            max_total_scalar_bytes: 2 * bytes,
            max_buffered_comment_events: MAX_COMMENTS,
            // Many aliases of one anchor are usual: a common environment in every service. What they
            // stand for is bounded below.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_REPLAYED,
        },
    }
}
