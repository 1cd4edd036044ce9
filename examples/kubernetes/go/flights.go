// The flights in Go: a program that is no member of the group, with the sidecar beside it.
//
// It does the work of ../flights_pods.py on the same store, under the same roles. It wants the
// carriers' roles as long as it runs, and a job's role until the job is done. Before each write it
// checks the end of its turn, and in the transaction of the write it checks the token.
// On SIGTERM it gives its jobs back, and works for the carriers until their roles are lost.
// `hold.go` speaks with the sidecar.
package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite"
)

const (
	chunk        = 40  // flights in one write
	batchSize    = 40  // jobs that are asked for at once: with four pods, we get about a quarter
	publishEvery = 500 // milliseconds
)

var errStale = errors.New("a greater token was seen")

// Work is all that a pod does.
type Work struct {
	name     string
	db       *sql.DB
	events   *os.File
	jobs     map[string][]*int64 // minutes of delay of each flight; nil: cancelled
	pace     time.Duration
	carriers *Consumer
	batch    *Consumer
}

func main() {
	log.SetFlags(0)
	folder, name := os.Getenv("FLIGHTS_DIRECTORY"), os.Getenv("POD_NAME")
	pace, err := strconv.ParseFloat(os.Getenv("FLIGHTS_PACE"), 64)
	must(err)
	w := &Work{name: name, pace: time.Duration(pace * float64(time.Second))}
	text, err := os.ReadFile(filepath.Join(folder, "jobs.json"))
	must(err)
	must(json.Unmarshal(text, &w.jobs))
	path := filepath.Join(folder, "events", name+".jsonl")
	w.events, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(err)
	// Each transaction takes the write lock at its begin, before it reads the fence.
	w.db, err = sql.Open("sqlite", "file:"+filepath.Join(folder, "store.db")+
		"?_txlock=immediate&_pragma=busy_timeout(30000)&_pragma=synchronous(normal)")
	must(err)
	w.db.SetMaxOpenConns(1)
	w.carriers, w.batch = newConsumer("carriers", w.said), newConsumer("jobs", w.said)
	w.say("revision", map[string]any{"revision": os.Getenv("POD_REVISION"), "program": "go"})
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM, os.Interrupt)
	w.serve(stopped)
	w.say("left", nil)
}

// serve works until SIGTERM, and goes on with the carriers' lines until their roles are lost.
func (w *Work) serve(stopped <-chan os.Signal) {
	w.carriers.Follow(w.carrierRoles())
	stopping, published := false, int64(0)
	for !stopping || len(w.carriers.Held()) > 0 {
		select {
		case <-stopped:
			stopping = true
			w.say("leaving", nil)
			w.batch.GiveAllBack()
		default:
		}
		w.carriers.Refresh()
		w.batch.Refresh()
		if now() >= published+publishEvery {
			published = now()
			for _, turn := range w.carriers.Held() {
				w.write(w.carriers, turn, w.publish)
			}
		}
		if stopping || !w.doOneChunk() {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// doOneChunk does some flights of a job, and returns whether there was a job.
func (w *Work) doOneChunk() bool {
	held := w.batch.Held()
	if len(held) == 0 {
		w.batch.GiveAllBack()
		if pending := w.pending(); len(pending) > 0 {
			w.batch.Take(pending)
		}
		return false
	}
	turn := held[0]
	first, size := 0, len(w.jobs[turn.Role])
	// Until the grant, another pod may have worked on this job.
	must(w.db.QueryRow("SELECT next FROM jobs WHERE id = ?", turn.Role).Scan(&first))
	if first < size {
		w.say("working", map[string]any{"role": turn.Role, "token": turn.Token, "first": first})
		time.Sleep(w.pace) // stands for the work
		if !w.write(w.batch, turn, func(turn Turn) error { return w.add(turn, first) }) {
			return true
		}
	}
	if first+chunk >= size {
		w.say("done", map[string]any{"role": turn.Role})
		w.batch.GiveBack(turn.Role)
	}
	return true
}

// write writes under a role if its end has not come, and returns whether it did.
func (w *Work) write(consumer *Consumer, turn Turn, do func(Turn) error) bool {
	if !turn.MayWrite() {
		return false
	}
	err := do(turn)
	if errors.Is(err, errStale) {
		w.say("refused", map[string]any{"role": turn.Role, "token": turn.Token, "why": err.Error()})
		consumer.GiveBack(turn.Role)
		return false
	}
	must(err)
	return true
}

// pending returns random jobs that are not done. In a fixed order, the jobs of a slow pod could take
// up the whole batch.
func (w *Work) pending() []string {
	rows, err := w.db.Query("SELECT id FROM jobs WHERE next < size" +
		" AND month <= (SELECT month FROM open_until)")
	must(err)
	defer rows.Close()
	var jobs []string
	for rows.Next() {
		var job string
		must(rows.Scan(&job))
		jobs = append(jobs, job)
	}
	must(rows.Err())
	rand.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
	return jobs[:min(batchSize, len(jobs))]
}

// add adds a chunk of a job to the totals.
func (w *Work) add(turn Turn, first int) error {
	delays := w.jobs[turn.Role][first:]
	delays = delays[:min(chunk, len(delays))]
	cancelled, sum := 0, int64(0)
	for _, delay := range delays {
		if delay == nil {
			cancelled++
		} else {
			sum += *delay
		}
	}
	carrier, date, _ := strings.Cut(turn.Role, "/") // UA/2013-01-31
	month, err := strconv.Atoi(date[5:7])
	must(err)
	return w.fenced(turn, first, len(delays), func(tx *sql.Tx) error {
		_, err := tx.Exec("UPDATE jobs SET next = ? WHERE id = ?", first+len(delays), turn.Role)
		if err != nil {
			return err
		}
		_, err = tx.Exec("INSERT INTO totals VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"+
			" flights = flights + excluded.flights, cancelled = cancelled + excluded.cancelled,"+
			" delay = delay + excluded.delay", carrier, month, len(delays), cancelled, sum)
		return err
	})
}

// publish puts a carrier's line on the board.
func (w *Work) publish(turn Turn) error {
	carrier := strings.TrimPrefix(turn.Role, "carrier/")
	return w.fenced(turn, nil, 0, func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT OR REPLACE INTO board SELECT ?, COALESCE(SUM(flights), 0), ?, ?"+
			" FROM totals WHERE carrier = ?", carrier, w.name, turn.Token, carrier)
		return err
	})
}

// fenced carries out a write in one transaction, unless a greater token was seen for the role.
func (w *Work) fenced(turn Turn, first any, count int, write func(*sql.Tx) error) error {
	tx, err := w.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	highest, at := turn.Token, clock(unix.CLOCK_MONOTONIC).Seconds()
	err = tx.QueryRow("SELECT token FROM fences WHERE role = ?", turn.Role).Scan(&highest)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if turn.Token < highest {
		_, err = tx.Exec("INSERT INTO refused (role, token, highest, member, at) VALUES (?, ?, ?, ?, ?)",
			turn.Role, turn.Token, highest, w.name, at)
		return errors.Join(errStale, err, tx.Commit())
	}
	_, err = tx.Exec("INSERT OR REPLACE INTO fences VALUES (?, ?)", turn.Role, turn.Token)
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO accepted (role, token, member, first, count, at)"+
		" VALUES (?, ?, ?, ?, ?, ?)", turn.Role, turn.Token, w.name, first, count, at)
	if err != nil {
		return err
	}
	if err = write(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (w *Work) carrierRoles() []string {
	seen := map[string]bool{}
	for job := range w.jobs {
		carrier, _, _ := strings.Cut(job, "/")
		seen["carrier/"+carrier] = true
	}
	var roles []string
	for role := range seen {
		roles = append(roles, role)
	}
	return roles
}

func (w *Work) said(what string, turn Turn) {
	w.say(what, map[string]any{"role": turn.Role, "token": turn.Token})
}

// say appends a line to the pod's file of events, with one system call.
func (w *Work) say(what string, facts map[string]any) {
	at := clock(unix.CLOCK_MONOTONIC).Seconds()
	event := map[string]any{"at": at, "member": w.name, "what": what}
	for name, fact := range facts {
		event[name] = fact
	}
	line, err := json.Marshal(event)
	must(err)
	_, err = w.events.Write(append(line, '\n'))
	must(err)
}

func must(err error) {
	if err != nil {
		log.Fatal(err) // the kubelet starts the container again
	}
}
