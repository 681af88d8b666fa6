package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// measure prints what a benchmark asks for: nanoseconds of single operations, or the moments of a line.
func measure(client *clientv3.Client, ttl int, what string, key string, number int) {
	times := map[string]func(*clientv3.Client, int, string, int) []int64{
		"lock": timeLocks, "hand-off": timeRawHandOffs, "line": standInLine,
	}[what](client, ttl, key, number)
	words := make([]string, len(times))
	for i, t := range times {
		words[i] = strconv.FormatInt(t, 10)
	}
	fmt.Println(strings.Join(words, " "))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// timeLocks: lock and unlock, uncontended.
func timeLocks(client *clientv3.Client, ttl int, key string, number int) (times []int64) {
	ctx := context.Background()
	session := must(concurrency.NewSession(client, concurrency.WithTTL(ttl)))
	for range number {
		start := time.Now()
		mutex := concurrency.NewMutex(session, key)
		if err := mutex.Lock(ctx); err != nil {
			log.Fatal(err)
		}
		if err := mutex.Unlock(ctx); err != nil {
			log.Fatal(err)
		}
		times = append(times, time.Since(start).Nanoseconds())
	}
	session.Close()
	return times
}

// timeRawHandOffs: a key is deleted, a watch tells of it, a transaction confirms.
func timeRawHandOffs(client *clientv3.Client, _ int, key string, number int) (times []int64) {
	ctx := context.Background()
	watch := client.Watch(ctx, key)
	for range number {
		must(client.Put(ctx, key, "held"))
		<-watch
		start := time.Now()
		go client.Delete(ctx, key)
		<-watch
		must(client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpGet(key, clientv3.WithPrefix()), clientv3.OpGet(key, clientv3.WithPrefix())).Commit())
		times = append(times, time.Since(start).Nanoseconds())
	}
	return times
}

// standInLine: grants and releases in turn, each a moment of the clock, for so many milliseconds after a line was read.
func standInLine(client *clientv3.Client, ttl int, key string, number int) (times []int64) {
	ctx := context.Background()
	session := must(concurrency.NewSession(client, concurrency.WithTTL(ttl)))
	fmt.Println("ready")
	must(bufio.NewReader(os.Stdin).ReadString('\n'))
	end := time.Now().Add(time.Duration(number) * time.Millisecond)
	for time.Now().Before(end) {
		mutex := concurrency.NewMutex(session, key)
		if err := mutex.Lock(ctx); err != nil {
			log.Fatal(err)
		}
		granted := time.Now()
		time.Sleep(time.Millisecond)
		released := time.Now()
		if err := mutex.Unlock(ctx); err != nil {
			log.Fatal(err)
		}
		times = append(times, granted.UnixNano(), released.UnixNano())
	}
	session.Close()
	return times
}
