import sys

import grpc
from waymaker_pb2 import Acquired, LockRequest, UnLockRequest
from waymaker_pb2_grpc import WaymakerServiceStub

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7421"
with grpc.insecure_channel(address) as channel:
    waymaker = WaymakerServiceStub(channel)
    request = LockRequest(key="jobs/nightly", max_wait_period=5_000, max_lease_period=30_000)
    for event in waymaker.Lock(request):
        if event.event_type != Acquired:
            print(event.message or "held by another client: waiting")
            continue
        print(f"acquired with fence {event.fence_token}")
        # ... the work, in less than 30 seconds, or with ExtendLease ...
        waymaker.UnLock(UnLockRequest(key=event.key, id=event.id))
        print("released")
