"""The process: its application, admission control, stop signals, and requests that it sends."""
