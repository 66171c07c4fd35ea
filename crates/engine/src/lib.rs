//! The one async orchestrator: trials, slots, judging, recording.
