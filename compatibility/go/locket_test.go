package locks

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example/locks/locket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	runnerCount = 100
	// retryInterval is so short that renewals arrive at every step of a stop.
	retryInterval = 10 * time.Millisecond
	// deadline is the time limit of one renewal. It is longer than a restart, like the interval of 5 s of the runner.
	deadline = watchdog
)

// runLock holds a lock with the same calls as the LockRunner of the Locket library, which ends when a renewal fails.
func runLock(ctx context.Context, address string, number int, renewals *atomic.Int64) error {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	client := locket.NewLocketClient(connection)
	request := &locket.LockRequest{
		Resource: &locket.Resource{
			Key: fmt.Sprint("key ", number), Owner: fmt.Sprint("owner ", number), TypeCode: locket.TypeCode_LOCK,
		},
		TtlInSeconds: 60,
	}
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(context.Background(), deadline)
		_, err := client.Lock(call, request, grpc.WaitForReady(true))
		cancel()
		if err != nil {
			return fmt.Errorf("lost lock %d: %w", number, err)
		}
		renewals.Add(1)
		time.Sleep(retryInterval)
	}
	return nil
}

// startServer starts a separate server, which listens for gRPC at the address.
func startServer(t *testing.T, grpcAddress, directory string) *exec.Cmd {
	t.Helper()
	command := exec.Command(os.Getenv("WAYMAKER_SERVER"), "--listen=127.0.0.1:0", "--grpc-listen="+grpcAddress,
		"--http-listen=none", "--drain=300ms", "--data-dir="+directory)
	command.Stderr = os.Stderr
	stdout, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	t.Cleanup(func() { command.Process.Kill() })
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	if !strings.HasPrefix(line, "ready ") {
		t.Fatalf("the server is not ready: %q", line)
	}
	return command
}

func TestLockRunnersSurviveGracefulRestarts(t *testing.T) {
	for name, directory := range map[string]string{"with a data directory": t.TempDir(), "without one": "none"} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			address := listener.Addr().String()
			listener.Close()
			server := startServer(t, address, directory)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var renewals atomic.Int64
			ends := make(chan error, runnerCount)
			for number := range runnerCount {
				go func() { ends <- runLock(ctx, address, number, &renewals) }()
			}
			waitForRenewals := func() {
				t.Helper()
				goal, begun := renewals.Load()+3*runnerCount, time.Now()
				for renewals.Load() < goal {
					select {
					case err := <-ends:
						t.Fatal(err)
					case <-time.After(time.Millisecond):
					}
					if time.Since(begun) > watchdog {
						t.Fatal("renewals are missing")
					}
				}
			}
			for range 2 {
				waitForRenewals()
				must(t, server.Process.Signal(syscall.SIGTERM))
				must(t, server.Wait())
				server = startServer(t, address, directory)
				waitForRenewals()
			}
		})
	}
}
