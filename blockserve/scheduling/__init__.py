"""When work is done: orders, bounds, fills, the policy that names them, and Algorithm 1. No torch, no text."""

from blockserve.scheduling.admission import FixedSlots, TokenBudget, register_fill
from blockserve.scheduling.policy import SchedulingPolicy
from blockserve.scheduling.queue import register_order
from blockserve.scheduling.scheduler import Scheduler

__all__ = ["FixedSlots", "Scheduler", "SchedulingPolicy", "TokenBudget", "register_fill", "register_order"]
