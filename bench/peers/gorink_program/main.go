// A process with members of Go Rink v2 in it, which holds roles and notes when.
//
// It speaks what bench/member.py speaks, one JSON object a line each way, so that the bench drives
// both alike. Notes are written out when they are asked for, after the time that counts.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/luno/rink/v2"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
)

type asked struct {
	Do       string   `json:"do"`
	Group    string   `json:"group"`
	Names    []string `json:"names"`
	Name     string   `json:"name"`
	Roles    int      `json:"roles"`
	WaitS    float64  `json:"wait"`
	QuietS   float64  `json:"quiet"`
	Rounds   int      `json:"rounds"`
	Size     int      `json:"size"`
	Endpoint string   `json:"endpoint"`
}

// stamp is [when, what, role].
type stamp [3]any

type member struct {
	cli  *clientv3.Client
	rink *rink.Rink
	stop context.CancelFunc
	ctx  context.Context

	mu     sync.Mutex
	stamps []stamp
	held   int
	rank   rink.Rank
}

var (
	endpoint string
	members  = map[string]*member{}
)

// now is the clock that all processes of the machine share.
func now() float64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return float64(ts.Sec) + float64(ts.Nsec)/1e9
}

func (m *member) note(what, role string) {
	at := now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stamps = append(m.stamps, stamp{at, what, role})
	if what == "gained" {
		m.held++
	} else {
		m.held--
	}
}

func join(a asked) (any, error) {
	at := now()
	for _, name := range a.Names {
		cli, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
		if err != nil {
			return nil, err
		}
		m := &member{cli: cli}
		m.ctx, m.stop = context.WithCancel(context.Background())
		m.rink = rink.New(cli, a.Group, rink.WithClusterOptions(rink.ClusterOptions{
			MemberName:    name,
			NewMemberWait: time.Duration(a.WaitS * float64(time.Second)),
			NotifyRank: func(_, _ string, r rink.Rank) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.rank = r
			},
		}))
		members[name] = m
	}
	return map[string]any{"asked_at": at}, nil
}

func (m *member) hold(role string) {
	for m.ctx.Err() == nil {
		ctx, cancel, err := m.rink.Roles.AwaitRoleContext(m.ctx, role)
		if err != nil {
			return
		}
		m.note("gained", role)
		<-ctx.Done()
		m.note("let go", role)
		cancel()
	}
}

func hold(a asked) (any, error) {
	m := members[a.Name]
	for i := 0; i < a.Roles; i++ {
		go m.hold(fmt.Sprintf("role-%d", i))
	}
	return nil, nil
}

func (m *member) take() any {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.stamps
	m.stamps = nil
	return map[string]any{"stamps": taken}
}

func held(a asked) (any, error) {
	m := members[a.Name]
	err := until(func() bool { return m.held >= a.Roles }, m)
	return m.take(), err
}

// settled waits until the member has a rank among so many.
func settled(a asked) (any, error) {
	for _, name := range a.Names {
		m := members[name]
		err := until(func() bool { return m.rank.HaveRank && int(m.rank.Size) == a.Size }, m)
		if err != nil {
			return nil, err
		}
	}
	return map[string]any{"at": now()}, nil
}

func until(happens func() bool, m *member) error {
	for end := now() + 100; now() < end; time.Sleep(2 * time.Millisecond) {
		m.mu.Lock()
		happened := happens()
		m.mu.Unlock()
		if happened {
			return nil
		}
	}
	return fmt.Errorf("it did not happen within 100 s")
}

func leave(a asked) (any, error) {
	at := now()
	var stamps []stamp
	for _, name := range a.Names {
		m := members[name]
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		m.rink.Shutdown(ctx)
		cancel()
		m.stop()
		time.Sleep(time.Duration(a.QuietS * float64(time.Second)))
		m.mu.Lock()
		stamps = append(stamps, m.stamps...)
		m.mu.Unlock()
		_ = m.cli.Close()
		delete(members, name)
	}
	return map[string]any{"asked_at": at, "stamps": stamps}, nil
}

// getRole is the speed of Roles.Get, of roles that are held here and of others', each known before.
func getRole(a asked) (any, error) {
	m := members[a.Name]
	ctx := context.Background()
	var mine, theirs []string
	for i := 0; i < 200; i++ {
		role := fmt.Sprintf("known-%06d", i)
		if _, cancel, ok := m.rink.Roles.Get(ctx, role); ok {
			cancel()
			mine = append(mine, role)
		} else {
			theirs = append(theirs, role)
		}
	}
	rate := func(roles []string) []float64 {
		var rates []float64
		times := a.Size / len(roles)
		for round := 0; round < a.Rounds; round++ {
			start := time.Now()
			for i := 0; i < times; i++ {
				for _, role := range roles {
					if _, cancel, ok := m.rink.Roles.Get(ctx, role); ok {
						cancel()
					}
				}
			}
			rates = append(rates, float64(times*len(roles))/time.Since(start).Seconds())
		}
		return rates
	}
	return map[string]any{"rates": map[string]any{"other": rate(theirs), "held": rate(mine)}}, nil
}

func main() {
	endpoint = os.Args[1]
	commands := map[string]func(asked) (any, error){
		"join": join, "hold": hold, "held": held, "settled": settled, "leave": leave,
		"get_role": getRole,
		"stamped":  func(a asked) (any, error) { return members[a.Name].take(), nil },
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var a asked
		var answer any
		err := json.Unmarshal(lines.Bytes(), &a)
		if err == nil {
			answer, err = commands[a.Do](a)
		}
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		if answer == nil {
			answer = map[string]string{}
		}
		said, _ := json.Marshal(answer)
		fmt.Println(string(said))
	}
}
