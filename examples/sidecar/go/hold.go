// Hold a role by the sidecar, and write "ROLE TOKEN" to stdout while it is held.
//
//	RINK_API=127.0.0.1:8181 go run hold.go ROLE
//
// The stream says that something has changed. A renewal says what is held, and until when.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

type turn struct {
	Role, Grant, State string
	Token              int64
	Until              int64 `json:"until_ms"`
	Now                int64 `json:"now_ms"`
	Left               int64 `json:"left_ms"`
}

const writeMs = 100 // no write begins later than this before the end

var (
	grant     atomic.Value // string
	changed   = make(chan struct{}, 1)
	transport = &http.Transport{} // obeys no http_proxy
	held      = map[string]turn{}
)

func nowMs() int64 {
	var seconds, hundredths int64
	text, _ := os.ReadFile("/proc/uptime")
	fmt.Sscanf(string(text), "%d.%d", &seconds, &hundredths)
	return 1000*seconds + 10*hundredths
}

type body map[string]any

func call(path string, fields body, timeout time.Duration) (*http.Response, error) {
	api := cmp.Or(os.Getenv("RINK_API"), "127.0.0.1:8181")
	text, _ := json.Marshal(fields)
	request, err := http.NewRequest("POST", "http://"+api+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}}
	return (&http.Client{Transport: transport, Timeout: timeout}).Do(request)
}

// follow keeps a stream open, and says that something has changed.
func follow(role string) {
	for ; ; time.Sleep(300 * time.Millisecond) {
		fields := body{"roles": []string{role}, "consumer": "go", "alive": 15}
		if known := grant.Load().(string); known != "" {
			fields = body{"grant": known}
		}
		stream, err := call("/v1/hold", fields, 0)
		if err != nil {
			continue
		}
		if stream.StatusCode == 410 { // the sidecar was restarted, or has forgotten us
			grant.Store("")
		}
		for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
			var event turn
			data, isData := strings.CutPrefix(lines.Text(), "data:")
			if isData && json.Unmarshal([]byte(data), &event) == nil && event.Role != "" {
				grant.Store(event.Grant) // granted, lost, waiting
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		}
		stream.Body.Close()
	}
}

// renew asks what is held, and answers what is lost. No work runs meanwhile.
func renew() {
	asked := nowMs()
	answer, err := call("/v1/renew", body{"grant": grant.Load()}, 2*time.Second)
	if err != nil {
		return // the ends that were told bind as before
	}
	defer answer.Body.Close()
	var turns struct{ Held []turn }
	if answer.StatusCode != 200 || json.NewDecoder(answer.Body).Decode(&turns) != nil {
		return
	}
	read := nowMs()
	clear(held)
	for _, one := range turns.Held {
		if one.State == "lost" {
			lost := body{"grant": one.Grant, "role": one.Role, "token": one.Token}
			if released, err := call("/v1/release", lost, 2*time.Second); err == nil {
				released.Body.Close()
			}
			continue
		}
		if one.Now < asked-20 || one.Now > read+20 { // another clock than the sidecar's
			one.Until = asked + one.Left
		}
		held[one.Role] = one
	}
}

func main() {
	grant.Store("")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go follow(os.Args[1])
	renewedAt, stopping := int64(0), false
	for {
		isChanged := false
		select {
		case <-stop:
			stopping = true
		case <-changed:
			isChanged = true
		case <-time.After(100 * time.Millisecond):
		}
		if grant.Load() != "" && (isChanged || nowMs() >= renewedAt+1000) {
			renewedAt = nowMs()
			renew()
		}
		isHeld := false
		for _, one := range held {
			isHeld = isHeld || nowMs() < one.Until
			if nowMs()+writeMs < one.Until { // before each write
				fmt.Println(one.Role, one.Token)
			}
		}
		if stopping && !isHeld {
			return
		}
	}
}
