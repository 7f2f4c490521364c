package rollout_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/afloat-project/afloat/internal/plugin/commands/rollout"
	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

const web = `{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web, uid: web},
spec: {replicas: 3, selector: {matchLabels: {app: web}}},
status: {observedGeneration: 1, updateRevision: web-b, replicas: 3, updatedReplicas: 1, updatedReadyReplicas: 1}}`

// updated says in the status how many pods are updated and ready.
func updated(n int) func(map[string]any) {
	return func(o map[string]any) {
		status := o["status"].(map[string]any)
		status["updatedReplicas"], status["updatedReadyReplicas"] = int64(n), int64(n)
	}
}

// following is a "rollout status" that runs beside the test.
type following struct {
	t     *testing.T
	s     *plugintest.Server
	clock *clocktesting.FakeClock
	lines chan string
	end   chan error
	rest  []byte
	mu    sync.Mutex
}

func (f *following) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rest = append(f.rest, p...)
	for {
		line, rest, ok := bytes.Cut(f.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		f.rest = rest
		f.lines <- string(line)
	}
}

// limit is how long anything may take that does not depend on the test's clock.
const limit = 30 * time.Second

func follow(t *testing.T, s *plugintest.Server, explain rollout.Explain, args ...string) *following {
	t.Helper()
	f := &following{t: t, s: s, clock: clocktesting.NewFakeClock(time.Now()), lines: make(chan string, 100), end: make(chan error, 1)}
	status := rollout.NewStatus(s.Factory(t), genericiooptions.IOStreams{Out: f, ErrOut: f})
	status.Clock, status.Explain = f.clock, explain
	cmd := status.Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { f.end <- cmd.ExecuteContext(ctx) }()
	return f
}

// line waits for the next line.
func (f *following) line(want string) {
	f.t.Helper()
	compare := func(got string) {
		f.t.Helper()
		if got != want {
			f.t.Fatalf("the line is %q, want %q", got, want)
		}
	}
	select {
	case got := <-f.lines:
		compare(got)
	case err := <-f.end:
		if len(f.lines) == 0 {
			f.t.Fatalf("it ended with %v, before the line %q", err, want)
		}
		f.end <- err // it printed the line before it ended
		compare(<-f.lines)
	case <-time.After(limit):
		f.t.Fatalf("there is no line %q", want)
	}
}

// ended waits for the end.
func (f *following) ended(want string) {
	f.t.Helper()
	select {
	case err := <-f.end:
		f.s.EndWatches() // none of its own is there for those that come after it
		if text := fmt.Sprint(err); text != want {
			f.t.Fatalf("it ended with %v, want %s", err, want)
		}
		if len(f.lines) > 0 {
			f.t.Fatalf("there is another line: %q", <-f.lines)
		}
	case <-time.After(limit):
		f.t.Fatal("it does not end")
	}
}

// step moves the clock once that many waits are under way.
func (f *following) step(waits int, d time.Duration) {
	f.t.Helper()
	if err := wait.PollUntilContextTimeout(f.t.Context(), time.Millisecond, limit, true, func(context.Context) (bool, error) {
		return f.clock.Waiters() >= waits, nil
	}); err != nil {
		f.t.Fatalf("%d waits are under way, not %d; %s", f.clock.Waiters(), waits, f.state())
	}
	f.clock.Step(d)
}

func watched(n int) string {
	return fmt.Sprintf(`Waiting for cloneset "web" rollout to finish: %d out of 3 new pods have been updated...`, n)
}

const done = `cloneset "web" successfully rolled out`

// OPS-140 (part): each step of a rollout is a line, until it is done; without watching there is only the
// first. One object must be named.
func TestStatus(t *testing.T) {
	s := plugintest.New(t, "v1beta1", web, strings.ReplaceAll(web, "web", "other"))
	f := follow(t, s, nil, "cloneset/web")
	f.line(watched(1))
	s.Change(t, "clonesets", "web", updated(2))
	f.line(watched(2))
	s.Change(t, "clonesets", "web",
		func(o map[string]any) { o["metadata"].(map[string]any)["labels"] = map[string]any{"a": "b"} }) // says nothing new
	s.Change(t, "clonesets", "web", func(o map[string]any) { o["spec"].(map[string]any)["template"] = map[string]any{"a": "b"} })
	f.line("Waiting for cloneset spec update to be observed...")
	s.Change(t, "clonesets", "web", func(o map[string]any) {
		updated(3)(o)
		o["status"].(map[string]any)["observedGeneration"] = int64(2)
	})
	f.line(done)
	f.ended("<nil>")
	for args, want := range map[string]string{
		"clone other --watch=false":    strings.ReplaceAll(watched(1), "web", "other") + "\n",
		"clone/web -w":                 done + "\n",
		"clone":                        "error: resource(s) were provided, but no name was specified\n",
		"clone/web clone/other":        "error: exactly one resource must be named, and these are 2\n",
		"clone/none":                   `error: clonesets.apps.kruise.io "none" not found` + "\n",
		"clone -l app=none":            "error: exactly one resource must be named, and these are 0\n",
		"clone/web --revision=-1":      "error: revision must be a positive integer: -1\n",
		"":                             "error: one or more resources must be specified as <resource> <name> or <resource>/<name>\n",
		"clone/web --timeout=tomorrow": `error: invalid argument "tomorrow" for "--timeout" flag: time: invalid duration "tomorrow"` + "\n",
	} {
		result := s.Run(t, command, append([]string{"rollout", "status"}, strings.Fields(args)...)...)
		if _, text, _ := strings.Cut(result.String(), "\n"); text != want {
			t.Errorf("%s: %s, want %s", args, text, want)
		}
	}
}

// OPS-140 (part): an object that is deleted while it is followed is an error, also if another one of its name
// takes its place while nobody watches.
func TestStatusOfADeletedObject(t *testing.T) {
	s := plugintest.New(t, "v1beta1", web)
	f := follow(t, s, nil, "cloneset/web")
	f.line(watched(1))
	s.Delete(t, "clonesets", "web")
	f.ended("cloneset.apps.kruise.io/web: object has been deleted")

	s.Put(t, web)
	for _, again := range []bool{false, true} {
		f = follow(t, s, nil, "cloneset/web")
		f.line(watched(1))
		s.AwaitWatches(t, 1)
		waiting := make(chan struct{})
		s.BeforeRead = func(plugintest.Request) error { <-waiting; return nil } // nothing is read until it is deleted
		s.EndWatches()
		s.Delete(t, "clonesets", "web")
		want := "cloneset.apps.kruise.io/web: object has been deleted"
		if again {
			s.Put(t, strings.Replace(web, "uid: web", "uid: another", 1))
			want += ", and another one of its name was made"
		}
		close(waiting)
		f.step(2, time.Second)
		f.ended(want)
		s.BeforeRead = nil
		if !again {
			s.Put(t, web)
		}
	}
}

// OPS-140 (part): a watch that ends, that the API server cannot go on with, or that it refuses for a while is
// begun anew, and nothing is missed. If it never answers, that is an error.
func TestStatusWatchesAgain(t *testing.T) {
	s := plugintest.New(t, "v1beta1", web)
	f := follow(t, s, nil, "cloneset/web")
	f.line(watched(1))
	for i, end := range []func(){s.EndWatches, s.Forget, s.EndWatches, s.Forget} {
		s.AwaitWatches(t, 1)
		f.settled()
		end()
		f.retries()
		s.Change(t, "clonesets", "web", updated(i%2+2))
		if i%2 == 1 {
			s.Change(t, "clonesets", "web", updated(0))
		}
		f.clock.Step(time.Second)
		if i%2 == 1 {
			f.line(watched(0))
			continue
		}
		f.line(watched(2))
	}
	s.AwaitWatches(t, 1)
	f.settled()
	var down atomic.Bool
	var asked atomic.Int32
	down.Store(true)
	s.BeforeRead = func(plugintest.Request) error {
		if asked.Add(1); down.Load() {
			return apierrors.NewInternalError(errors.New("no time"))
		}
		return nil
	}
	s.EndWatches()
	for range 3 {
		f.retries()
		f.clock.Step(10 * time.Second)
	}
	f.retries()
	down.Store(false)
	s.Change(t, "clonesets", "web", updated(3))
	f.clock.Step(10 * time.Second)
	f.line(done)
	f.ended("<nil>")
	if asked.Load() < 4 {
		t.Errorf("it was asked %d times", asked.Load())
	}

	down.Store(false)
	s.Change(t, "clonesets", "web", updated(1))
	f = follow(t, s, nil, "cloneset/web")
	f.line(watched(1))
	s.AwaitWatches(t, 1)
	down.Store(true)
	s.EndWatches()
	for range 8 {
		f.retries()
		f.clock.Step(5 * time.Minute)
	}
	f.ended("cloneset.apps.kruise.io/web: watching failed 8 times: Internal error occurred: no time")
}

// state is what the command did that the test did not look at.
func (f *following) state() string {
	var text strings.Builder
	for {
		select {
		case line := <-f.lines:
			fmt.Fprintf(&text, "line %q; ", line)
		case err := <-f.end:
			fmt.Fprintf(&text, "ended with %v; ", err)
		default:
			return text.String()
		}
	}
}

// settled waits until nothing but the patience of the command is waited for.
func (f *following) settled() { f.waits(1) }

// retries waits until the command waits to try again.
func (f *following) retries() { f.waits(2) }

func (f *following) waits(count int) {
	f.t.Helper()
	if err := wait.PollUntilContextTimeout(f.t.Context(), time.Millisecond, limit, true, func(context.Context) (bool, error) {
		return f.clock.Waiters() == count, nil
	}); err != nil {
		f.t.Fatalf("%d waits are under way, not %d; %s", f.clock.Waiters(), count, f.state())
	}
}

// OPS-140 (part): when the time is over, that is an error, which says how far it was; 0 means no end.
func TestATimeoutIsAnErrorThatSaysHowFarItWas(t *testing.T) {
	s := plugintest.New(t, "v1beta1", web)
	f := follow(t, s, nil, "cloneset/web", "--timeout=5m")
	f.line(watched(1))
	f.step(2, 5*time.Minute)
	f.ended("cloneset.apps.kruise.io/web: timed out after 5m0s: " + watched(1))
	f = follow(t, s, nil, "cloneset/web")
	f.line(watched(1))
	f.step(1, 1000*time.Hour)
	s.Change(t, "clonesets", "web", updated(3))
	f.line(done)
	f.ended("<nil>")
}

// A rollout that does not move for some seconds is explained below its line, again when the reason changes,
// and no more when it moves.
func TestStatusSaysWhyItWaits(t *testing.T) {
	s := plugintest.New(t, "v1beta1", web)
	var asked atomic.Int32
	explain := func(_ context.Context, info *resource.Info, _ string) (string, error) {
		switch asked.Add(1) {
		case 1, 2:
			return "pod web-1 waits for " + info.Name + ":\nno node has room", nil
		case 3, 4:
			return "", errors.New("pods cannot be read")
		}
		return "it moves again", nil
	}
	f := follow(t, s, explain, "cloneset/web")
	f.line(watched(1))
	f.step(1, 5*time.Second)
	f.line("  pod web-1 waits for web:")
	f.line("  no node has room")
	f.step(1, 5*time.Second) // the same is not said again
	f.asked(&asked, 2)
	f.step(1, 5*time.Second)
	f.line("  Why it waits is not known: pods cannot be read")
	s.Change(t, "clonesets", "web", updated(2))
	f.line(watched(2))
	f.step(1, 5*time.Second)
	f.line("  Why it waits is not known: pods cannot be read") // of another line, so it is said anew
	f.step(1, 5*time.Second)
	f.line("  it moves again")
	s.Change(t, "clonesets", "web", updated(3))
	f.line(done)
	f.ended("<nil>")
}

func (f *following) asked(asked *atomic.Int32, count int32) {
	f.t.Helper()
	if err := wait.PollUntilContextTimeout(f.t.Context(), time.Millisecond, limit, true, func(context.Context) (bool, error) {
		return asked.Load() == count, nil
	}); err != nil {
		f.t.Fatalf("it was asked %d times, not %d", asked.Load(), count)
	}
}

// The reason stands below the names of the pods.
func TestStatusSaysWhyInDetail(t *testing.T) {
	s := plugintest.New(t, "v1beta1", web)
	f := follow(t, s, func(context.Context, *resource.Info, string) (string, error) { return "no node has room", nil }, "cloneset/web", "--detail")
	for _, n := range []int{1, 2} {
		s.Change(t, "clonesets", "web", updated(n))
		f.line(watched(n))
		f.line("  Updated ready pods: none")
		f.line("  Updated pods that are not ready: none")
		f.step(1, 5*time.Second)
		f.line("  Updated ready pods: none")
		f.line("  Updated pods that are not ready: none")
		f.line("  no node has room")
	}
}

// The reason is that of the manager, wherever it is installed.
func TestStatusAsksWhyOfTheManagerElsewhere(t *testing.T) {
	for _, tt := range []struct{ args, want string }{{"--detail=false", "kruise-system"}, {"--manager-namespace=elsewhere", "elsewhere"}} {
		s := plugintest.New(t, "v1beta1", web)
		f := follow(t, s, func(_ context.Context, _ *resource.Info, namespace string) (string, error) {
			return "asked in " + namespace, nil
		},
			"cloneset/web", tt.args)
		f.line(watched(1))
		f.step(1, 5*time.Second)
		f.line("  asked in " + tt.want)
	}
}
