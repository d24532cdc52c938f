// SPDX-License-Identifier: MIT
// Goroutines whose stacks grow, and are moved and preempted, while memory is collected all the time.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

var made int64

//go:noinline
func work(n int) int {
	atomic.AddInt64(&made, 1)
	if n == 0 {
		return 0
	}
	return work(n-1) + 1
}

func main() {
	go func() {
		for {
			runtime.GC()
		}
	}()
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var calls int
		var all sync.WaitGroup
		fmt.Sscan(in.Text(), &calls)
		before := atomic.LoadInt64(&made)
		for i := 0; i < calls; i++ {
			all.Add(1)
			go func(depth int) {
				defer all.Done()
				if work(depth) != depth {
					panic("a wrong depth")
				}
			}(i % 300)
		}
		all.Wait()
		fmt.Println("made", atomic.LoadInt64(&made)-before)
	}
}
