// SPDX-License-Identifier: MIT
// Goroutines that call C, which calls Go, which panics through it.
package main

/*
#include <unistd.h>
long through(long (*to)(long), long n);
long back(long n);
__attribute__((noinline)) static long work(long n) { return n * 3 + (getppid() == 0); }
static long call_through(long n) { return through(back, n); }
*/
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
)

//export back
func back(n C.long) C.long {
	if n%7 == 0 {
		panic("through C")
	}
	return n
}

func passes(n int) (out int) {
	defer func() {
		if recover() != nil {
			out = n + 1
		}
	}()
	return int(C.call_through(C.long(n)))
}

//go:noinline
func deep(n int) int {
	if n == 0 {
		return 0
	}
	return deep(n-1) + 1
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
		for i := 0; i < calls; i++ {
			all.Add(1)
			go func(n int) {
				defer all.Done()
				deep(n % 300)
				if C.work(C.long(n)) != C.long(3*n) || passes(n) != n+1 {
					panic("a wrong result")
				}
			}(i)
		}
		all.Wait()
		fmt.Println("done", calls)
	}
}
