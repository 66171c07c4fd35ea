//! Scripted oracles, builders and harnesses for tests.
