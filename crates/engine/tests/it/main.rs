//! The engine on the simulated platform, in virtual time.

mod bed;
mod campaigns;
mod cases;
mod confirming;
mod debugging;
mod format_2;
mod leases;
mod shop;
mod starts;
mod trials;
mod ways;
