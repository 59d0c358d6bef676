//! What is generated from the catalogue, and what is found in the kept recordings.

mod catalogue;
mod conservation;
mod corpus;
mod names;
mod parked;
