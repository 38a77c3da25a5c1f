"""A sensor that defers, and comes back when its trigger has fired."""

from __future__ import annotations

import asyncio
import json
import threading
from importlib import import_module

import pytest
from airflow.sdk.exceptions import (
    TaskDeferred,
)


def run_trigger(sensor, *, timeout: float = 300, later=None):
    """Defer the sensor, serialise its trigger as Airflow does, run the trigger, and resume the sensor.

    :param later: called a second after the deferral.
    """
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})
    path, arguments = deferred.value.trigger.serialize()
    assert json.loads(json.dumps(arguments)) == arguments
    module, _, name = path.rpartition(".")
    trigger = getattr(import_module(module), name)(**arguments)

    async def first_event():
        return await asyncio.wait_for(anext(aiter(trigger.run())), timeout)

    if later:
        threading.Timer(1, later).start()
    event = asyncio.run(first_event())
    assert json.loads(json.dumps(event.payload)) == event.payload
    return getattr(sensor, deferred.value.method_name)({}, event=event.payload)
