//! Real processes in real slots.

mod netns;
mod support;
