// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"testing"
)

// Suite holds what the tests of one package share, such as a control plane and its manager, so that each test function
// can be run alone and all together pay for one start:
//
//	var (
//		suite  testenv.Suite
//		shared = testenv.NewShared(&suite, newEnv) // func newEnv(t testing.TB) *env
//	)
//
//	func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }
//
//	func TestSomething(t *testing.T) { e := shared.Get(t) ... }
type Suite struct {
	mu       sync.Mutex
	cleanups []func()
	failed   bool
}

// Run runs the tests of the package, then ends what they share, and returns the exit code of the process.
func (s *Suite) Run(m *testing.M) int {
	code := m.Run()
	s.runCleanups()
	if s.failed && code == 0 {
		return 1
	}
	return code
}

// runCleanups calls the cleanups, the last first. A cleanup may add others.
func (s *Suite) runCleanups() {
	for {
		s.mu.Lock()
		last := len(s.cleanups) - 1
		if last < 0 {
			s.mu.Unlock()
			return
		}
		cleanup := s.cleanups[last]
		s.cleanups = s.cleanups[:last]
		s.mu.Unlock()
		cleanup()
	}
}

// Shared is a value that starts with the first test that gets it, and ends after the last test of the package.
type Shared[T any] struct {
	suite *Suite
	start func(testing.TB) T

	once    sync.Once
	value   T
	started bool
	skipped string
}

// NewShared shares what start returns. Start must not skip or fail through another TB than the one it is given.
func NewShared[T any](suite *Suite, start func(testing.TB) T) *Shared[T] {
	return &Shared[T]{suite: suite, start: start}
}

// Get returns the value, and starts it if this is the first test to ask. Once a start has failed or was skipped, so are
// all tests that ask.
func (s *Shared[T]) Get(t testing.TB) T {
	t.Helper()
	s.once.Do(func() {
		ended := make(chan struct{})
		ctx := context.WithoutCancel(t.Context())
		tb := &suiteTB{TB: t, suite: s.suite, context: func() context.Context { return ctx }}
		// FailNow and SkipNow end their goroutine, so start has one of its own.
		go func() {
			defer close(ended)
			s.value = s.start(tb)
			s.started = true
		}()
		<-ended
		s.skipped = tb.skipped
	})
	switch {
	case s.skipped != "":
		t.Skip(s.skipped)
	case !s.started:
		t.Fatal("expected what the tests of this package share to start, found that it failed; see the first test's log")
	}
	return s.value
}

// suiteTB is the testing.TB of what outlives a test. It embeds the first test's only because no type outside package
// testing can implement the interface otherwise; that test ends long before the suite, so none of its methods is used.
type suiteTB struct {
	testing.TB
	suite   *Suite
	context func() context.Context
	skipped string
}

func (s *suiteTB) Helper()                  {}
func (s *suiteTB) Name() string             { return "suite" }
func (s *suiteTB) Context() context.Context { return s.context() }
func (s *suiteTB) Output() io.Writer        { return os.Stderr }
func (s *suiteTB) Skipped() bool            { return s.skipped != "" }
func (s *suiteTB) Log(args ...any)          { fmt.Fprintln(os.Stderr, args...) }
func (s *suiteTB) Error(args ...any)        { s.Log(args...); s.Fail() }
func (s *suiteTB) Fatal(args ...any)        { s.Log(args...); s.FailNow() }
func (s *suiteTB) Skip(args ...any)         { s.skipped = fmt.Sprint(args...); s.SkipNow() }
func (s *suiteTB) SkipNow()                 { runtime.Goexit() }
func (s *suiteTB) FailNow()                 { s.Fail(); runtime.Goexit() }

func (s *suiteTB) Logf(format string, args ...any)   { s.Log(fmt.Sprintf(format, args...)) }
func (s *suiteTB) Errorf(format string, args ...any) { s.Error(fmt.Sprintf(format, args...)) }
func (s *suiteTB) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }
func (s *suiteTB) Skipf(format string, args ...any)  { s.Skip(fmt.Sprintf(format, args...)) }

func (s *suiteTB) Fail() {
	s.suite.mu.Lock()
	defer s.suite.mu.Unlock()
	s.suite.failed = true
}

func (s *suiteTB) Failed() bool {
	s.suite.mu.Lock()
	defer s.suite.mu.Unlock()
	return s.suite.failed
}

func (s *suiteTB) Cleanup(cleanup func()) {
	s.suite.mu.Lock()
	defer s.suite.mu.Unlock()
	s.suite.cleanups = append(s.suite.cleanups, cleanup)
}

func (s *suiteTB) TempDir() string {
	dir, err := os.MkdirTemp("", "suite-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			s.Error(err)
		}
	})
	return dir
}

// Setenv sets a variable for the rest of the package's tests.
func (s *suiteTB) Setenv(name, value string) {
	if err := os.Setenv(name, value); err != nil {
		s.Fatal(err)
	}
}
