"""The process: admission control, stop signals, and requests that it sends."""
