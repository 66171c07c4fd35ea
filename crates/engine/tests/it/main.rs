//! The engine on the simulated platform, in virtual time.

mod bed;
mod campaigns;
mod debugging;
mod trials;
