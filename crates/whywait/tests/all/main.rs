//! The program, run as a shell would.

mod cli;
mod common;
mod compare;
mod cpu;
mod hostile;
mod kinds;
mod old_recordings;
mod privileges;
mod publish;
mod record;
mod rotate;
mod secrets;
mod survive;
