//! One store over several servers: each counter is on one, and checks may span them.

mod attempts;
mod away;
mod crowd;
mod histories;
mod ids;
mod operating;
mod places;
mod rig;
mod spanning;
mod totals;
