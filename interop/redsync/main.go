// A redsync client that is driven over pipes, in the words of distlock-worker: JSON requests on standard input,
// answers on standard output. Arguments: host:port of each server. For a benchmark each is a URL, and each line,
// `<tasks> <each>`, asks for that many pairs of lock and unlock in each of so many tasks, on a key for each; the answer
// is the time that it took, in nanoseconds.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

type ask struct {
	ID   int    `json:"id"`
	Do   string `json:"do"`
	Key  string `json:"key"`
	TTL  int64  `json:"ttl_ms"`
	Wait *int64 `json:"wait_ms"`
	Hold int    `json:"hold"`
}

type answer struct {
	ID      int    `json:"id"`
	Answer  string `json:"answer"`
	Hold    int    `json:"hold,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Message string `json:"message,omitempty"`
}

var (
	client *redsync.Redsync
	lock   sync.Mutex
	holds  = map[int]*redsync.Mutex{}
	next   = 1
)

func acquire(a ask) answer {
	mutex := client.NewMutex(a.Key, redsync.WithExpiry(time.Duration(a.TTL)*time.Millisecond), redsync.WithTries(1))
	start := time.Now()
	for mutex.TryLock() != nil {
		if a.Wait != nil && time.Since(start) >= time.Duration(*a.Wait)*time.Millisecond {
			kind := "timeout"
			if *a.Wait == 0 {
				kind = "busy"
			}
			return answer{Answer: "failed", Kind: kind, Message: "not obtained"}
		}
		time.Sleep(time.Duration(20+rand.Intn(80)) * time.Millisecond)
	}
	lock.Lock()
	defer lock.Unlock()
	holds[next] = mutex
	next++
	return answer{Answer: "granted", Hold: next - 1}
}

func perform(a ask) answer {
	if a.Do == "acquire" {
		return acquire(a)
	}
	lock.Lock()
	mutex := holds[a.Hold]
	lock.Unlock()
	held, _ := mutex.Valid()
	if a.Do == "release" {
		held, _ = mutex.Unlock()
	}
	if held {
		return answer{Answer: "yes"}
	}
	return answer{Answer: "no"}
}

func measure() {
	var tasks, each int
	for {
		if _, err := fmt.Scan(&tasks, &each); err != nil {
			return
		}
		var all sync.WaitGroup
		start := time.Now()
		for task := 0; task < tasks; task++ {
			mutex := client.NewMutex(fmt.Sprintf("redsync:order:close:%d", task), redsync.WithExpiry(30*time.Second))
			all.Go(func() {
				for i := 0; i < each; i++ {
					if err := mutex.Lock(); err != nil {
						panic(err)
					}
					mutex.Unlock()
				}
			})
		}
		all.Wait()
		fmt.Println(time.Since(start).Nanoseconds())
	}
}

func main() {
	var pools []redis.Pool
	bench := strings.HasPrefix(os.Args[1], "redis://")
	for _, address := range os.Args[1:] {
		address = strings.TrimPrefix(address, "redis://")
		pools = append(pools, goredis.NewPool(goredislib.NewClient(&goredislib.Options{Addr: address})))
	}
	client = redsync.New(pools...)
	if bench {
		measure()
		return
	}
	var output sync.Mutex
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var a ask
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			panic(err)
		}
		go func() {
			said := perform(a)
			said.ID = a.ID
			text, _ := json.Marshal(said)
			output.Lock()
			defer output.Unlock()
			fmt.Println(string(text))
		}()
	}
}
