//! Delta debugging and resilience exploration as state machines.
