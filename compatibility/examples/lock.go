package main

import (
	"context"
	"fmt"
	"os"

	pb "example/locks/waymaker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func main() {
	ctx, address := context.Background(), append(os.Args, "127.0.0.1:7421")[1]
	connection, _ := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	waymaker := pb.NewWaymakerServiceClient(connection)
	events, err := waymaker.Lock(ctx, &pb.LockRequest{Key: "jobs/nightly", MaxWaitPeriod: 5_000})
	for event := new(pb.LockEvent); err == nil; event, err = events.Recv() {
		if event.EventType == pb.LockEventType_Acquired {
			fmt.Println("acquired with fence", event.FenceToken)
			waymaker.UnLock(ctx, &pb.UnLockRequest{Key: event.Key, Id: event.Id})
		}
	}
	fmt.Println(err) // EOF once it is released
}
