// Run a command while a Lease is held, as k8s-await-election 0.4.2 does it.
//
//	awaiter KUBECONFIG NAMESPACE NAME COMMAND…
//
// The tool itself is not in the Go module proxy. This is what it does by default, read in its
// source: client-go's leader election with 15 s, 10 s and 2 s, the pod's name as the identity,
// ReleaseOnCancel, and the command killed when the Lease is lost. It does not handle SIGTERM. The
// tool can also write a Service's Endpoints and answer a probe: this program does neither.
package main

import (
	"context"
	"log"
	"os"
	"os/exec"

	"k8s.io/client-go/tools/leaderelection"

	"rink.test/controlplane/election"
)

func main() {
	if len(os.Args) < 5 {
		log.Fatal("usage: awaiter KUBECONFIG NAMESPACE NAME COMMAND…")
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		log.Fatal(err)
	}
}

func run(kubeconfig, namespace, name string, command []string) error {
	lock, err := election.NewLock(kubeconfig, namespace, name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error)
	elector, err := election.NewElector(lock, leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			child := exec.CommandContext(ctx, command[0], command[1:]...)
			child.Stdout, child.Stderr = os.Stdout, os.Stderr
			ended <- child.Run()
		},
		OnStoppedLeading: func() { log.Print("lost leader status") },
	})
	if err != nil {
		return err
	}
	go elector.Run(ctx)
	return <-ended
}
