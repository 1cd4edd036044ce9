// A candidate of client-go's leader election, with the settings that its documentation gives.
//
//	elector KUBECONFIG NAMESPACE NAME FILE
//
// It appends an event to FILE when it begins to lead and when it ends, as a line of JSON with the
// time of CLOCK_BOOTTIME. On SIGTERM it stops its work first, and releases the lease then, as
// ReleaseOnCancel asks for. The token is the number of the lease's transitions.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/leaderelection"

	"rink.test/controlplane/election"
)

type history struct {
	lock  sync.Mutex
	file  *os.File
	who   string
	token int
	leads bool
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: elector KUBECONFIG NAMESPACE NAME FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace, name, path string) error {
	// The identity is as the components of Kubernetes make it. With the pod's name alone, a program
	// that is started again in its pod would take its former life's lease for its own.
	lock, err := election.NewLock(kubeconfig, namespace, name+"_"+string(uuid.NewUUID()))
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	said := &history{file: file, who: name}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-signals
		said.letGo() // the work ends before the lease is released
		cancel()
	}()
	elector, err := election.NewElector(lock, leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			record, _, err := lock.Get(ctx)
			if err != nil {
				return // it is lost again, or being cancelled
			}
			said.gained(ctx, record.LeaderTransitions+1)
		},
		OnStoppedLeading: said.letGo,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile("ready", nil, 0o644); err != nil {
		return err
	}
	elector.Run(ctx)
	return nil
}

func (h *history) gained(ctx context.Context, token int) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if ctx.Err() == nil {
		h.leads, h.token = true, token
		h.say("gained")
	}
}

func (h *history) letGo() {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.leads {
		h.leads = false
		h.say("let go")
	}
}

func (h *history) say(what string) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err)
	}
	at := float64(now.Sec) + float64(now.Nsec)/1e9
	line, err := json.Marshal(map[string]any{"what": what, "who": h.who, "role": election.Role, "token": h.token, "at": at})
	if err != nil {
		panic(err)
	}
	if _, err := h.file.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}
