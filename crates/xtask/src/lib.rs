//! The project's commands.
