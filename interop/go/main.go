// A client of etcd's package concurrency that is driven over pipes, in the words of distlock-worker: JSON requests on
// standard input, answers on standard output, in whatever order they get done. Arguments: the endpoint, and the TTL of
// the sessions in seconds; for a benchmark, also what to measure, the lock's name, and how often.
//
// The package's owner is the session, so each hold has one of its own.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

type request struct {
	ID   uint64  `json:"id"`
	Do   string  `json:"do"`
	Key  string  `json:"key"`
	Wait *uint64 `json:"wait_ms"`
	Hold uint64  `json:"hold"`
}

type reply struct {
	ID      uint64 `json:"id"`
	Answer  string `json:"answer"`
	Kind    string `json:"kind,omitempty"`
	Message string `json:"message,omitempty"`
	Hold    uint64 `json:"hold,omitempty"`
	Token   int64  `json:"token,omitempty"`
}

type hold struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

type peer struct {
	client  *clientv3.Client
	ttl     int
	out     sync.Mutex
	holds   sync.Map
	numbers atomic.Uint64
}

func failed(kind string, err error) reply {
	return reply{Answer: "failed", Kind: kind, Message: err.Error()}
}

func (p *peer) acquire(ask request) reply {
	session, err := concurrency.NewSession(p.client, concurrency.WithTTL(p.ttl))
	if err != nil {
		return failed("unavailable", err)
	}
	mutex := concurrency.NewMutex(session, ask.Key)
	ctx := context.Background()
	if ask.Wait != nil && *ask.Wait == 0 {
		err = mutex.TryLock(ctx)
	} else {
		if ask.Wait != nil {
			limited, cancel := context.WithTimeout(ctx, time.Duration(*ask.Wait)*time.Millisecond)
			defer cancel()
			ctx = limited
		}
		err = mutex.Lock(ctx)
	}
	if err == nil {
		number := p.numbers.Add(1)
		p.holds.Store(number, hold{session, mutex})
		return reply{Answer: "granted", Hold: number, Token: mutex.Header().Revision}
	}
	session.Close()
	switch {
	case errors.Is(err, concurrency.ErrLocked):
		return failed("busy", err)
	case errors.Is(err, context.DeadlineExceeded):
		return failed("timeout", err)
	default:
		return failed("unavailable", err)
	}
}

func (p *peer) perform(ask request) reply {
	if ask.Do == "acquire" {
		return p.acquire(ask)
	}
	found, there := p.holds.Load(ask.Hold)
	if !there {
		return reply{Answer: "no"}
	}
	held := found.(hold)
	answer, err := p.client.Txn(context.Background()).If(held.mutex.IsOwner()).Commit()
	if err != nil {
		return failed("unavailable", err)
	}
	if ask.Do == "release" {
		p.holds.Delete(ask.Hold)
		if err := held.mutex.Unlock(context.Background()); err != nil {
			return failed("unavailable", err)
		}
		held.session.Close()
	}
	if answer.Succeeded {
		return reply{Answer: "yes"}
	}
	return reply{Answer: "no"}
}

func main() {
	ttl, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}, DialTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	if len(os.Args) > 3 {
		measure(client, ttl, os.Args[3], os.Args[4], must(strconv.Atoi(os.Args[5])))
		return
	}
	p := &peer{client: client, ttl: ttl}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var ask request
		if err := json.Unmarshal(lines.Bytes(), &ask); err != nil {
			log.Fatal(err)
		}
		go func() {
			answer := p.perform(ask)
			answer.ID = ask.ID
			p.out.Lock()
			defer p.out.Unlock()
			if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
				log.Fatal(err)
			}
		}()
	}
}
