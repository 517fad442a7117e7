// Package locks holds tests that use a real server from Go.
package locks

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// watchdog is the time after which an expected event counts as missing. No other verdict depends on it.
const watchdog = 60 * time.Second

// hourMs is a lease, wait or timeout that is longer than any test.
const hourMs = 3_600_000

// The addresses of the server that all tests share, by name, from its ready line.
var addresses = map[string]string{}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	command := exec.Command(os.Getenv("WAYMAKER_SERVER"), "--listen=127.0.0.1:0", "--grpc-listen=127.0.0.1:0",
		"--http-listen=127.0.0.1:0", "--dynamodb-listen=127.0.0.1:0", "--data-dir=none")
	command.Stderr = os.Stderr
	stdout, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot start the server:", err)
		return 1
	}
	defer command.Wait()
	defer command.Process.Kill()
	timer := time.AfterFunc(watchdog, func() { command.Process.Kill() })
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	timer.Stop()
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "ready" {
		fmt.Fprintf(os.Stderr, "the server is not ready: %q\n", line)
		return 1
	}
	for _, word := range words[1:] {
		name, address, _ := strings.Cut(word, "=")
		addresses[name] = address
	}
	return m.Run()
}

// ask returns a context for one call, which ends with the test or the watchdog.
func ask(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), watchdog)
	t.Cleanup(cancel)
	return ctx
}

// must fails the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want fails the test if a value is not the wanted one.
func want[T comparable](t *testing.T, what string, got, wanted T) {
	t.Helper()
	if got != wanted {
		t.Fatalf("%s: got %v, want %v", what, got, wanted)
	}
}
