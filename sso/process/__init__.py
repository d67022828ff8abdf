"""The process: admission control and stop signals."""
