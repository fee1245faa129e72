//! The exercises of "Attention, Built".
//!
//! The files in `tasks/` are the one source: [`task`] reads them. From them come the reader's folder ([`folder`]), in which
//! the program of this crate says what is right and what is not ([`practice`]), the proof that each
//! task can be solved and each planted fault is caught ([`verify`]), and a teacher's table ([`grade`]).

#![deny(missing_docs, unsafe_code)]

pub mod code;
pub mod files;
pub mod folder;
pub mod grade;
pub mod practice;
pub mod task;
pub mod trial;
pub mod verify;
