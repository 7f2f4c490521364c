package restart

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

const resource = "containerrecreaterequests.apps.kruise.io"

// counted is the command with names that a test knows.
func counted(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	n, lock := 0, sync.Mutex{}
	return newCommand(f, streams, func() string {
		lock.Lock()
		defer lock.Unlock()
		n++
		return fmt.Sprint(n)
	}, time.Millisecond)
}

// daemon goes on by a step whenever a request is looked at. Containers whose name begins with "bad" fail.
type daemon struct {
	*plugintest.Server
	t     *testing.T
	lock  sync.Mutex
	steps map[string]int
	// open are the requests under way, and most is how many there were at a time.
	open, most int
	// until holds all requests until there were as many at a time.
	until int
}

func newDaemon(t *testing.T, s *plugintest.Server) *daemon {
	d := &daemon{Server: s, t: t, steps: map[string]int{}}
	s.After = func(object *unstructured.Unstructured) {
		d.lock.Lock()
		defer d.lock.Unlock()
		if object.GetKind() == "ContainerRecreateRequest" {
			d.open++
			d.most = max(d.most, d.open)
		}
	}
	s.BeforeRead = d.step
	return d
}

func (d *daemon) step(r plugintest.Request) error {
	if r.Resource != resource || r.Name == "" || d.Get(d.t, resource, r.Name) == nil {
		return nil
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.most < d.until {
		return nil
	}
	d.steps[r.Name]++
	step := d.steps[r.Name]
	d.Change(d.t, resource, r.Name, func(o map[string]any) {
		var states []any
		phase, status := "Recreating", map[string]any{}
		if step == 4 {
			phase = "Succeeded"
			status["completionTime"] = "2026-01-01T00:00:00Z"
			d.open--
		}
		containers, _, _ := unstructured.NestedSlice(o, "spec", "containers")
		for _, raw := range containers {
			state := map[string]any{"name": raw.(map[string]any)["name"], "phase": phase}
			if strings.HasPrefix(state["name"].(string), "bad") && step == 4 {
				state["phase"], state["message"] = "Failed", "kill container error: no way"
			}
			states = append(states, state)
		}
		if step > 1 {
			status["containerRecreateStates"] = states
			o["status"] = status
		}
	})
	return nil
}

func pod(name, owner, container, phase string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {app: web}, ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, "+
		"kind: CloneSet, name: web, uid: %s, controller: true}]}, spec: {containers: [{name: app}, {name: %s}]}, "+
		"status: {phase: %s}}", name, owner, container, phase)
}

func server(t *testing.T) *plugintest.Server {
	return plugintest.NewIn(t, "shop", "v1beta1",
		"{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}}}",
		"{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: none}, spec: {selector: {matchLabels: {app: web}}}}",
		pod("web-a", "uid-cloneset-web", "log", "Running"), pod("web-b", "uid-cloneset-web", "log", "Pending"),
		pod("web-c", "uid-cloneset-web", "log", "Running"), pod("web-d", "uid-cloneset-web", "log", "Failed"),
		pod("stranger", "uid-of-another", "bad", "Running"))
}

// Containers of a pod, or of all pods of a workload one after the other, are restarted and followed to their
// end, and what fails is an error.
func TestContainersAreRestartedAndFollowedToTheirEnd(t *testing.T) {
	var all string
	for _, line := range []string{
		"web-a", "web-a -c log --minStartedSeconds=60 --unreadyGracePeriodSeconds=0", "pod/stranger -c app", "stranger", "clone/web -c app",
		"clone/web --wait=false", "clone/web --dry-run=client -o name", "web-a --dry-run=server", "web-a -o name",
		"web-a -c nothing", "nothing web-a -c log", "clone/none", "web-a --parallel=0", "", "web-a --minStartedSeconds=-1", "web-a --timeout=0",
	} {
		d := newDaemon(t, server(t))
		all += d.Play(t, counted, append([]string{"restart"}, strings.Fields(line)...)...)
		if d.most > 1 && !strings.Contains(line, "wait=false") {
			t.Errorf("%d at a time by %s", d.most, line)
		}
	}
	golden.Compare(t, "restart", all)
}

// As many pods at a time as --parallel says, and never more.
func TestNoMorePodsAtATimeThanParallelSays(t *testing.T) {
	s := server(t)
	for i := range 7 {
		s.Put(t, pod(fmt.Sprintf("more-%d", i), "uid-cloneset-web", "log", "Running"))
	}
	d := newDaemon(t, s)
	d.until = 3
	out, err := s.Run(t, counted, "restart", "clone/web", "--parallel=3").Output()
	if err != nil {
		t.Errorf("restart: %v", err)
	}
	if d.most != 3 {
		t.Errorf("requests at once: got %d at most, want 3", d.most)
	}
	if d.open != 0 {
		t.Errorf("open requests at the end: got %d, want none", d.open)
	}
	if n := strings.Count(out, "log Succeeded"); n != 9 {
		t.Errorf("containers that were restarted: got %d, want 9: %s", n, out)
	}
}

// No further pod after the first failure: what a request says, that it is refused, that it is deleted, or
// that it does not end.
func TestNoFurtherPodAfterTheFirstFailure(t *testing.T) {
	tests := map[string]struct {
		spoil func(*plugintest.Server, *daemon)
		want  string
	}{
		"refused": {func(s *plugintest.Server, _ *daemon) {
			s.Before = func(plugintest.Request) error {
				return apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("gate is off"))
			}
		}, "gate is off"},
		"deleted": {func(s *plugintest.Server, _ *daemon) {
			s.BeforeRead = func(r plugintest.Request) error {
				if r.Resource == resource {
					s.Delete(t, resource, r.Name)
				}
				return nil
			}
		}, "was deleted"},
		"no answer": {func(s *plugintest.Server, _ *daemon) { s.BeforeRead = nil }, "has not ended after 5ms: waiting for the node daemon"},
		"ended by the manager": {func(s *plugintest.Server, _ *daemon) {
			s.BeforeRead = func(r plugintest.Request) error {
				if r.Resource == resource {
					s.Change(t, resource, r.Name, func(o map[string]any) {
						o["status"] = map[string]any{"completionTime": "2026-01-01T00:00:00Z", "message": "pod has gone"}
					})
				}
				return nil
			}
		}, "have not restarted: pod has gone"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := server(t)
			tt.spoil(s, newDaemon(t, s))
			args := []string{"restart", "clone/web", "-c", "log"}
			if name == "no answer" {
				args = append(args, "--timeout=5ms")
			}
			err := s.Run(t, counted, args...).Err
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error: got %v, want %q in it", err, tt.want)
			}
			left := "2 of the 3 pods of CloneSet web were left alone"
			if err == nil || !strings.Contains(err.Error(), left) {
				t.Errorf("error: got %v, want %q in it", err, left)
			}
			if n := len(s.Requests()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// Where no pod is left, none is spoken of.
func TestFailureOfTheLast(t *testing.T) {
	s := server(t)
	s.Delete(t, "pods", "web-b")
	s.Delete(t, "pods", "web-c")
	s.BeforeRead = nil
	err := s.Run(t, counted, "restart", "clone/web", "--timeout=5ms").Err
	if err == nil {
		t.Error("a pod that does not answer: want an error")
	} else if strings.Contains(err.Error(), "left alone") {
		t.Errorf("error: got %q, want no other pods in it", err)
	}
}

// A pod that goes before its turn is no failure.
func TestAPodThatGoesBeforeItsTurnIsNoFailure(t *testing.T) {
	s := server(t)
	d := newDaemon(t, s)
	s.BeforeRead = func(r plugintest.Request) error {
		err := d.step(r)
		if r.Name == "web-a-1" && s.Get(t, "pods", "web-c") != nil {
			s.Delete(t, "pods", "web-c")
		}
		return err
	}
	out, err := s.Run(t, counted, "restart", "clone/web", "-c", "log").Output()
	if err != nil {
		t.Errorf("restart: %v", err)
	}
	if !strings.Contains(out, "pod/web-c is gone") {
		t.Errorf("output: got %q, want that pod web-c is gone", out)
	}
	if n := len(s.Requests()); n != 1 {
		t.Errorf("requests: got %d, want 1", n)
	}
}

// The next pod waits until the former serves again, and not only until its request has ended: the request
// keeps it out of service until then.
func TestTheNextPodWaitsUntilTheFormerServesAgain(t *testing.T) {
	s := server(t)
	s.Delete(t, "pods", "web-b")
	serves := func(name, status string) {
		s.Change(t, "pods", name, func(o map[string]any) {
			_ = unstructured.SetNestedSlice(o, []any{map[string]any{"type": "Ready", "status": status}}, "status", "conditions")
		})
	}
	serves("web-a", "True")
	serves("web-c", "True")
	d := newDaemon(t, s)
	out, looks := "", 0
	var lock sync.Mutex
	s.Before = func(r plugintest.Request) error {
		lock.Lock()
		defer lock.Unlock()
		if out != "" {
			t.Errorf("%s is restarted while %s does not serve", r.Body, out)
		}
		for _, name := range []string{"web-a", "web-c"} {
			if strings.Contains(r.Body, `"podName":"`+name+`"`) {
				out, looks = name, 0
				serves(name, "False")
			}
		}
		return nil
	}
	s.BeforeRead = func(r plugintest.Request) error {
		err := d.step(r)
		if r.Name == "" {
			return err
		}
		lock.Lock()
		defer lock.Unlock()
		if looks++; r.Resource == "pods" && r.Name == out && looks > 6 {
			serves(out, "True")
			out = ""
		}
		return err
	}
	if err := s.Run(t, counted, "restart", "clone/web", "-c", "log").Err; err != nil {
		t.Errorf("restart: %v", err)
	}
	if out != "" {
		t.Errorf("pod %s is still not ready at the end", out)
	}
	if n := len(s.Requests()); n != 2 {
		t.Errorf("requests: got %d, want 2", n)
	}
	s.Delete(t, resource, "web-a-1")
	s.BeforeRead, d.steps = d.step, map[string]int{} // the pod never serves again
	err := s.Run(t, counted, "restart", "clone/web", "-c", "log", "--timeout=50ms").Err
	for _, want := range []string{"pod web-a is not ready again after 50ms", "1 of the 2 pods"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error: got %v, want %q in it", err, want)
		}
	}
}
