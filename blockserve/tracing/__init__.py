"""What a run leaves behind: versioned records, their file form, and metrics as pure functions of them."""

from blockserve.tracing.trace import Trace, TraceWriter

__all__ = ["Trace", "TraceWriter"]
