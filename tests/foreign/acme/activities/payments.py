"""Payments, and holds on a customer's money."""

from dataclasses import dataclass

from temporalio import activity


@dataclass
class Payment:
    order: str
    cents: int


@activity.defn
async def hold(payment: Payment) -> str:
    return f"hold-{payment.order}"


@activity.defn
async def release(hold_id: str) -> None:
    activity.logger.info("released %s", hold_id)


@activity.defn
async def pay_back(payment: Payment) -> str:
    return f"Paid back {payment.cents} cents for order {payment.order}."
