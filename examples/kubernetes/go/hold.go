package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	renewMs  = 1000
	marginMs = 100 // no write begins in the last 100 ms before an end
)

// Turn is the state of a role that the consumer wants. Until is 0 while no work under it is allowed.
type Turn struct {
	Role  string
	Token int64
	State string // held, lost, or waiting
	Until int64  `json:"until_ms"`
	Now   int64  `json:"now_ms"`
	Left  int64  `json:"left_ms"`
}

// Answer has the roles of a grant, as the sidecar states them.
type Answer struct {
	Grant   string
	Held    []Turn
	Waiting []Turn
}

// Consumer holds roles through the sidecar. One goroutine calls its methods and does the work,
// so no work runs while it answers a loss.
type Consumer struct {
	name    string
	said    func(what string, turn Turn) // called with "granted" before all work, "released" after it
	turns   map[string]Turn
	grant   atomic.Value // string
	changed chan struct{}
	renewed int64
}

func newConsumer(name string, said func(string, Turn)) *Consumer {
	c := &Consumer{name: name, said: said, turns: map[string]Turn{}, changed: make(chan struct{}, 1)}
	c.grant.Store("")
	return c
}

type body map[string]any

var transport = &http.Transport{} // obeys no http_proxy

func call(path string, fields body, accept string, timeout time.Duration) (*http.Response, error) {
	text, _ := json.Marshal(fields)
	url := "http://" + cmp.Or(os.Getenv("RINK_API"), "127.0.0.1:8181") + path
	request, err := http.NewRequest("POST", url, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {accept}}
	return (&http.Client{Transport: transport, Timeout: timeout}).Do(request)
}

// Follow holds roles by a stream, and resumes it whenever it breaks. The stream says that
// something has changed. A renewal says what is held, and until when.
func (c *Consumer) Follow(roles []string) {
	for _, role := range roles {
		c.turns[role] = Turn{Role: role}
	}
	go func() {
		for ; ; time.Sleep(300 * time.Millisecond) {
			fields := body{"roles": roles, "consumer": c.name, "alive": 15}
			if grant := c.grant.Load(); grant != "" {
				fields = body{"grant": grant}
			}
			if stream, err := call("/v1/hold", fields, "text/event-stream", 0); err == nil {
				c.read(stream)
			}
		}
	}()
}

func (c *Consumer) read(stream *http.Response) {
	defer stream.Body.Close()
	if stream.StatusCode == http.StatusGone { // the sidecar was restarted, or has forgotten us
		c.grant.Store("")
	}
	for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
		var event struct{ Role, Grant string }
		data, isData := strings.CutPrefix(lines.Text(), "data:")
		if isData && json.Unmarshal([]byte(data), &event) == nil && event.Role != "" {
			c.grant.Store(event.Grant) // granted, lost, waiting
			select {
			case c.changed <- struct{}{}:
			default:
			}
		}
	}
}

// Take asks once for roles, and waits briefly for the first grant. Renewals bring the others.
func (c *Consumer) Take(roles []string) {
	clear(c.turns)
	for _, role := range roles {
		c.turns[role] = Turn{Role: role}
	}
	c.ask("/v1/hold", body{"roles": roles, "consumer": c.name, "alive": 15, "wait": 0.2})
}

// Refresh learns what is held: once a second, and at once after a change.
func (c *Consumer) Refresh() {
	select {
	case <-c.changed:
		c.renewed = 0
	default:
	}
	if grant := c.grant.Load(); grant != "" && now() >= c.renewed+renewMs {
		c.ask("/v1/renew", body{"grant": grant}) // if it fails, the known ends stay valid
	}
	for _, turn := range c.turns {
		if !turn.MayWrite() {
			c.stop(turn)
		}
	}
}

func (c *Consumer) ask(path string, fields body) {
	asked := now()
	c.renewed = asked
	response, err := call(path, fields, "application/json", 2*time.Second)
	if err != nil {
		return
	}
	defer response.Body.Close()
	var answer Answer
	if response.StatusCode != http.StatusOK || json.NewDecoder(response.Body).Decode(&answer) != nil {
		return
	}
	c.grant.Store(answer.Grant)
	c.learn(answer, asked, now())
}

// learn updates the turns by an answer, and releases each role that is over.
func (c *Consumer) learn(answer Answer, asked, read int64) {
	told := map[string]Turn{}
	for _, turn := range answer.Waiting {
		told[turn.Role] = Turn{State: "waiting"}
	}
	for _, turn := range answer.Held {
		if turn.Now < asked-20 || turn.Now > read+20 { // another clock than the sidecar's
			turn.Until = asked + turn.Left
		}
		told[turn.Role] = turn
	}
	for role, known := range c.turns {
		switch turn := told[role]; turn.State {
		case "held":
			if known.Until == 0 || known.Token != turn.Token {
				c.stop(known)
				c.said("granted", turn)
			}
			c.turns[role] = turn
		case "waiting": // an end that an earlier life of the sidecar told stays valid
		default: // lost, or the end has passed. A release with the token waits for the role again
			c.stop(known)
			c.release(role, max(known.Token, turn.Token))
		}
	}
}

// stop notes that no work runs under a role any more.
func (c *Consumer) stop(turn Turn) {
	if turn.Until != 0 {
		c.said("released", turn)
		turn.Until = 0
		c.turns[turn.Role] = turn
	}
}

func (c *Consumer) release(role string, token int64) {
	fields := body{"grant": c.grant.Load(), "role": role}
	if token != 0 {
		fields["token"] = token
	}
	if response, err := call("/v1/release", fields, "application/json", 2*time.Second); err == nil {
		response.Body.Close()
	}
}

// GiveBack ends the work under a role, or the wait for it, for good.
func (c *Consumer) GiveBack(role string) {
	c.stop(c.turns[role])
	delete(c.turns, role)
	c.release(role, 0)
}

// GiveAllBack gives back every role.
func (c *Consumer) GiveAllBack() {
	for role := range c.turns {
		c.GiveBack(role)
	}
}

// Held returns the turns under which work is allowed, by the name of the role.
func (c *Consumer) Held() []Turn {
	var held []Turn
	for _, turn := range c.turns {
		if turn.Until != 0 {
			held = append(held, turn)
		}
	}
	slices.SortFunc(held, func(a, b Turn) int { return strings.Compare(a.Role, b.Role) })
	return held
}

// MayWrite returns whether a write may begin now. It is asked before each one.
func (t Turn) MayWrite() bool { return now()+marginMs < t.Until }

// now reads the clock of the ends, in milliseconds.
func now() int64 { return clock(unix.CLOCK_BOOTTIME).Milliseconds() }

func clock(id int32) time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(id, &at); err != nil {
		panic(err)
	}
	return time.Duration(at.Nano())
}
