package runtime_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	testclock "k8s.io/utils/clock/testing"

	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/runtime/fakecri"
)

func look(t *testing.T, s *fakecri.Server) *runtime.Runtime {
	t.Helper()
	set := runtime.NewSet(runtime.Options{Root: s.Root()})
	set.Look(t.Context())
	r, err := set.ForImages()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ND-031, ND-034, ND-035, ND-037, CRR-100, OPS-026: as long as no runtime can be used, an error and the log
// list every path tried and why it cannot be used. Afterwards runtimes are found by the scheme of container
// IDs. TestCandidates has the whole list, TestRuntimeComesLateAndRestarts shows the retries, and
// TestOldRuntimesAreRefused what a runtime must serve.
func TestRuntimesAreFoundAndReported(t *testing.T) {
	s := fakecri.Start(t)
	s.Set(func(s *fakecri.Server) {
		s.Failing = map[string]error{"ListImages": status.Error(codes.Internal, "content store is broken")}
	})
	if err := os.WriteFile(filepath.Join(s.Root(), "crio.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	set := runtime.NewSet(runtime.Options{Root: s.Root()})
	if err := set.Ready(); err == nil {
		t.Error("ready without a look")
	}
	var logged strings.Builder
	ctx := klog.NewContext(t.Context(), funcr.New(func(_, text string) { logged.WriteString(text + "\n") }, funcr.Options{}))
	set.Look(ctx)
	err := set.Ready()
	for _, want := range []string{s.Path + ": listing images: ", "content store is broken", "crio.sock: not a socket",
		"cri-dockerd.sock: no such file",
		"k3s/containerd/containerd.sock: no such file"} {
		if err == nil {
			t.Errorf("no runtime can be used: no error, want one with %q", want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("no runtime can be used: got error %v, want one with %q", err, want)
		}
		if !strings.Contains(logged.String(), want) {
			t.Errorf("%q is not logged: %s", want, logged.String())
		}
	}
	if before := logged.Len(); before > 0 {
		if set.Look(ctx); logged.Len() != before {
			t.Errorf("the same is logged again: %s", logged.String()[before:])
		}
	}
	if _, err := set.ForContainer("containerd://a"); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("the runtime of a container, while none can be used: got %v, want %v",
			err, runtime.ErrUnavailable)
	}
	s.Set(func(s *fakecri.Server) { s.Failing = nil })
	set.Look(t.Context())
	if err := set.Ready(); err != nil {
		t.Errorf("a runtime that can be used again: %v", err)
	}
	r, err := set.ForContainer("containerd://a")
	if err != nil {
		t.Errorf("the runtime of a container of containerd: %v", err)
	} else if r.Name() != "containerd" {
		t.Errorf("the runtime of a container of containerd: got %s", r.Name())
	}
	for _, id := range []string{"docker://a", "a", "", "://a", "containerd://"} {
		if r, err := set.ForContainer(id); err == nil {
			t.Errorf("the runtime of container %q: got %v, want an error", id, r)
		} else if errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("the runtime of container %q: got error %v, want one that is final", id, err)
		}
	}
}

// ND-030 (part), OPS-026 (part): in its pod the daemon looks for sockets below the mounted folder of the
// host.
func TestSocketsOfTheHost(t *testing.T) {
	for file, want := range map[string]string{"": "unix:///hostvarrun/k3s/containerd/containerd.sock: no such file",
		"my.sock": "unix:///hostvarrun/my.sock: no such file"} {
		set := runtime.NewSet(runtime.Options{SocketFile: file})
		set.Look(t.Context())
		if err := set.Ready(); err == nil {
			t.Errorf("socket file %q: no error, want one with %q", file, want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("socket file %q: got error %v, want one with %q", file, err, want)
		}
	}
}

// ND-033, ND-190, OPS-121: a runtime without CRI v1 is refused with that reason.
func TestOldRuntimesAreRefused(t *testing.T) {
	s := fakecri.Start(t)
	s.Set(func(s *fakecri.Server) {
		s.Failing = map[string]error{"Version": status.Error(codes.Unimplemented, "unknown service runtime.v1.RuntimeService")}
	})
	set := runtime.NewSet(runtime.Options{Root: s.Root()})
	set.Look(t.Context())
	if err := set.Ready(); err == nil {
		t.Error("a runtime without CRI v1: no error")
	} else if !strings.Contains(err.Error(), "does not serve CRI v1") {
		t.Errorf("a runtime without CRI v1: got error %v, want that it does not serve it", err)
	}
}

// ND-030: with a socket file given nothing else is tried.
func TestAGivenSocketIsTheOnlyOneTried(t *testing.T) {
	s := fakecri.Start(t)
	set := runtime.NewSet(runtime.Options{Root: s.Root(), SocketFile: "other/my.sock"})
	set.Look(t.Context())
	want := "no usable container runtime: unix://" + s.Root() + "/other/my.sock: no such file"
	if err := set.Ready(); err == nil {
		t.Errorf("the given socket is missing: no error, want %s", want)
	} else if err.Error() != want {
		t.Errorf("the given socket is missing:\ngot  %v\nwant %s", err, want)
	}
	set = runtime.NewSet(runtime.Options{Root: filepath.Dir(s.Root()), SocketFile: filepath.Base(s.Root()) + "/containerd.sock"})
	set.Look(t.Context())
	if err := set.Ready(); err != nil {
		t.Errorf("the given socket is there: %v", err)
	}
}

// ND-037, ND-038: the runtime comes late, restarts and comes back; the daemon looks again by itself, at most
// 30 s later.
func TestRuntimeComesLateAndRestarts(t *testing.T) {
	s := fakecri.Start(t)
	s.Close()
	clock := testclock.NewFakeClock(time.Now())
	set := runtime.NewSet(runtime.Options{Root: s.Root(), Clock: clock})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- set.Run(ctx) }()
	await := func(what string, done func() bool) {
		t.Helper()
		deadline := time.Now().Add(30 * time.Second)
		for !done() {
			if time.Now().After(deadline) {
				t.Fatalf("waited 30s until %s: %v", what, set.Ready())
			}
			if clock.HasWaiters() {
				clock.Step(30 * time.Second)
			}
			goruntime.Gosched()
		}
	}
	await("told of the missing runtime", func() bool {
		err := set.Ready()
		return err != nil && strings.Contains(err.Error(), "containerd.sock")
	})
	s.Listen(t)
	await("usable", func() bool { return set.Ready() == nil })
	r, err := set.ForImages()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	await("gone", func() bool { return set.Ready() != nil })
	if _, err := r.Images(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("a call meanwhile: %v", err)
	}
	s.Listen(t)
	await("back", func() bool { return set.Ready() == nil })
	if _, err := r.Images(t.Context()); err != nil {
		t.Errorf("a call on the same connection: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the end of the daemon's looking for runtimes: %v", err)
	}
}

// ND-036, IMG-146: with several runtimes images go to the one that runs kubelet's pods, and containers to
// that of their ID.
func TestImagesGoToTheRuntimeOfKubelet(t *testing.T) {
	containerd := fakecri.Start(t)
	docker := &fakecri.Server{Name: "docker", Path: filepath.Join(containerd.Root(), "cri-dockerd.sock"), Pods: 3}
	docker.Listen(t)
	t.Cleanup(docker.Close)
	set := runtime.NewSet(runtime.Options{Root: containerd.Root()})
	set.Look(t.Context())
	if r, err := set.ForImages(); err != nil {
		t.Errorf("the runtime of images, where docker has most pods: %v", err)
	} else if r.Name() != "docker" {
		t.Errorf("the runtime of images, where docker has most pods: got %s", r.Name())
	}
	containerd.Set(func(s *fakecri.Server) { s.Pods = 5 })
	set.Look(t.Context())
	if r, err := set.ForImages(); err != nil {
		t.Errorf("the runtime of images, where containerd has most pods: %v", err)
	} else if r.Name() != "containerd" {
		t.Errorf("the runtime of images, where containerd has most pods: got %s", r.Name())
	}
	if r, err := set.ForContainer("docker://x"); err != nil {
		t.Errorf("the runtime of a container of docker: %v", err)
	} else if r.Name() != "docker" {
		t.Errorf("the runtime of a container of docker: got %s", r.Name())
	}
}

// IMG-146, ND-036, ND-038, CRR-100: while kubelet's runtime restarts, or has not come up yet, nothing is
// pulled into another one, and its containers do not count as those of a runtime that the node does not have.
// When kubelet has moved to another runtime, the former one does not count.
func TestKubeletsRuntimeIsAway(t *testing.T) {
	kubelets := fakecri.Start(t)
	kubelets.Set(func(s *fakecri.Server) { s.Pods = 2 })
	other := &fakecri.Server{Name: "docker", Path: filepath.Join(kubelets.Root(), "cri-dockerd.sock")}
	other.Listen(t)
	t.Cleanup(other.Close)
	away := func(set *runtime.Set) {
		t.Helper()
		if r, err := set.ForImages(); !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("the runtime of images, while kubelet's is away: got %v, %v, want %v",
				r, err, runtime.ErrUnavailable)
		}
		r, err := set.ForContainer("containerd://a")
		if err == nil && r.Name() != "containerd" {
			t.Errorf("the runtime of a container of containerd, which is away: got %s", r.Name())
		}
		if err != nil && !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("the runtime of a container of containerd, which is away: got error %v, want %v", err,
				runtime.ErrUnavailable)
		}
	}
	set := runtime.NewSet(runtime.Options{Root: kubelets.Root()})
	set.Look(t.Context())
	if r, err := set.ForImages(); err != nil {
		t.Fatalf("the runtime of images: %v", err)
	} else if r.Name() != "containerd" {
		t.Fatalf("the runtime of images: got %s, want containerd", r.Name())
	}
	kubelets.Close() // its socket goes, too
	set.Look(t.Context())
	away(set)
	kubelets.Listen(t)
	kubelets.Set(func(s *fakecri.Server) {
		s.Failing = map[string]error{"Version": status.Error(codes.Unavailable, "starting")}
	})
	set.Look(t.Context())
	away(set)
	fresh := runtime.NewSet(runtime.Options{Root: kubelets.Root()}) // as of a daemon that starts now
	fresh.Look(t.Context())
	away(fresh)
	other.Set(func(s *fakecri.Server) { s.Pods = 1 })
	for _, set := range []*runtime.Set{set, fresh} {
		set.Look(t.Context())
		if r, err := set.ForImages(); err != nil {
			t.Errorf("the runtime of images after the kubelet has moved: %v", err)
		} else if r.Name() != "docker" {
			t.Errorf("the runtime of images after the kubelet has moved: got %s, want docker", r.Name())
		}
	}
}

// ND-084, CRR-116, ND-085: what a runtime reports about containers; the newest of a name is the one created
// last.
func TestContainers(t *testing.T) {
	s := fakecri.Start(t)
	r := look(t, s)
	at := time.Unix(1000, 0)
	s.Add(fakecri.Container{ID: "new", Name: "app", Namespace: "ns", Pod: "p", UID: "u", State: cri.ContainerState_CONTAINER_RUNNING,
		Created: at.Add(time.Second),
		Started: at.Add(2 * time.Second), RestartCount: 1, Hash: "c210bc73", Image: "nginx:alpine"})
	s.Add(fakecri.Container{ID: "old", Name: "app", Namespace: "ns", Pod: "p", UID: "u", State: cri.ContainerState_CONTAINER_EXITED,
		Created: at, Hash: "no hex"})
	s.Add(fakecri.Container{ID: "foreign", Name: "app", UID: "other", Created: at.Add(time.Hour)})
	list, err := r.Containers(t.Context(), "u")
	if err != nil {
		t.Fatalf("listing the containers: %v", err)
	}
	if len(list) != 2 {
		t.Fatalf("containers of the pod: got %v, want 2", list)
	}
	want := &runtime.Container{ID: "containerd://new", Name: "app", PodNamespace: "ns", PodName: "p", PodUID: "u", Running: true,
		CreatedAt: at.Add(time.Second),
		Image:     "nginx:alpine", RestartCount: 1, PlainHash: 0xc210bc73,
		Annotations: map[string]string{runtime.AnnotationHash: "c210bc73", runtime.AnnotationRestartCount: "1"}}
	if diff := cmp.Diff(want, runtime.Newest(list, "app")); diff != "" {
		t.Errorf("the newest container (-want +got):\n%s", diff)
	}
	if c := runtime.Newest(list, "none"); c != nil {
		t.Errorf("the newest container of an unknown name: got %+v, want none", c)
	}
	if _, err := r.Containers(t.Context(), ""); err == nil {
		t.Error("an empty UID lists every container of the node")
	}
	inspected, err := r.Status(t.Context(), "containerd://new")
	if err != nil {
		t.Errorf("status of the new container: %v", err)
	}
	if want := at.Add(2 * time.Second); !inspected.StartedAt.Equal(want) {
		t.Errorf("start of the new container: got %s, want %s", inspected.StartedAt, want)
	}
	if inspected.PlainHash != 0xc210bc73 {
		t.Errorf("hash of the new container: got %x, want c210bc73", inspected.PlainHash)
	}
	if _, err := r.Status(t.Context(), "containerd://none"); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("status of an unknown container: got error %v, want %v", err, runtime.ErrNotFound)
	}
}

// ND-105, ND-192, ND-193: the environment comes from the runtime's record, without a program in the image;
// else from a command whose output cannot be misread; and no error contains values.
func TestEnvironment(t *testing.T) {
	want := map[string]string{"A": "x=y", "B": "two\nC=lines", "EMPTY": ""}
	unset := func(string, []string) (string, int32, error) {
		return "", 0, status.Error(codes.NotFound, "no such program")
	}
	for name, test := range map[string]struct {
		container fakecri.Container
		exec      func(id string, command []string) (string, int32, error)
		commands  int
		fails     bool
	}{
		"from the record": {container: fakecri.Container{Env: []string{"A=1", "A=x=y", "B=two\nC=lines", "EMPTY="}}, exec: unset},
		"by env": {container: fakecri.Container{NoRecord: true}, commands: 1,
			exec: func(_ string, command []string) (string, int32, error) {
				if strings.Join(command, " ") != "env -0" {
					return "", 1, nil
				}
				return "A=x=y\x00B=two\nC=lines\x00EMPTY=\x00", 0, nil
			}},
		"from the process": {container: fakecri.Container{NoRecord: true}, commands: 2,
			exec: func(_ string, command []string) (string, int32, error) {
				if command[0] == "env" {
					return "", 127, nil
				}
				return "A=x=y\x00B=two\nC=lines\x00EMPTY=\x00", 0, nil
			}},
		"not at all": {container: fakecri.Container{NoRecord: true}, exec: unset, commands: 2, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := fakecri.Start(t)
			r := look(t, s)
			s.Set(func(s *fakecri.Server) { s.OnExec = test.exec })
			test.container.ID, test.container.UID = "c", "u"
			s.Add(test.container)
			got, err := r.Environment(t.Context(), "containerd://c")
			if test.fails != (err != nil) {
				t.Fatalf("reading the environment: got error %v, want one: %t", err, test.fails)
			}
			if diff := cmp.Diff(want, got); diff != "" && !test.fails {
				t.Errorf("the environment (-want +got):\n%s", diff)
			}
			if n := len(s.Calls("ExecSync")); n != test.commands {
				t.Errorf("commands that were run: got %d, want %d", n, test.commands)
			}
		})
	}
}

// ND-002, CRR-107: stopping a container that has ended, or that the runtime does not know, changes nothing;
// the runtime gets the grace period in seconds.
func TestStop(t *testing.T) {
	s := fakecri.Start(t)
	r := look(t, s)
	s.Add(fakecri.Container{ID: "c", UID: "u", State: cri.ContainerState_CONTAINER_RUNNING})
	for range 2 {
		if err := r.Stop(t.Context(), "containerd://c", 7*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if calls := s.Calls("StopContainer"); calls[0].Grace != 7*time.Second {
		t.Errorf("grace period of the stop: got %s, want 7s", calls[0].Grace)
	}
	if n := len(s.Containers()); n != 1 {
		t.Errorf("containers of the runtime: got %d, want 1", n)
	}
	if err := r.Stop(t.Context(), "containerd://none", time.Second); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("stopping an unknown container: got error %v, want %v", err, runtime.ErrNotFound)
	}
}

// IMG-004, IMG-018, IMG-139, IMG-137, IMG-224: labels, annotations and credentials reach the runtime, and
// pulling an image that exists already is not a failure.
func TestPull(t *testing.T) {
	s := fakecri.Start(t)
	r := look(t, s)
	auth := runtime.Auth{Username: "u", Password: "p", IdentityToken: "i", RegistryToken: "r"}
	if err := r.Pull(t.Context(), "img:1", auth, map[string]string{"l": "1"}, map[string]string{"a": "2"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Pull(t.Context(), "img:1", runtime.Auth{}, nil, nil); err != nil {
		t.Fatal(err)
	}
	calls := s.Calls("PullImage")
	a := calls[0].Auth
	if got, want := []string{a.GetUsername(), a.GetPassword(), a.GetIdentityToken(), a.GetRegistryToken()},
		[]string{"u", "p", "i", "r"}; !cmp.Equal(want, got) {
		t.Errorf("credentials of the first pull: got %q, want %q", got, want)
	}
	if calls[1].Auth != nil {
		t.Errorf("credentials of the second pull: got %v, want none", calls[1].Auth)
	}
	c := calls[0].Sandbox
	if got := c.GetLabels()["l"]; got != "1" {
		t.Errorf("label of the sandbox: got %q, want \"1\"", got)
	}
	if got := c.GetAnnotations()["a"]; got != "2" {
		t.Errorf("annotation of the sandbox: got %q, want \"2\"", got)
	}
	s.Set(func(s *fakecri.Server) {
		s.OnPull = func(context.Context, string, *cri.AuthConfig) error {
			return status.Error(codes.AlreadyExists, "exists")
		}
	})
	if err := r.Pull(t.Context(), "img:1", runtime.Auth{}, nil, nil); err != nil {
		t.Errorf("pulling an image that exists already: %v", err)
	}
}

// ND-039: an answer of some 10 MiB is read.
func TestLargeAnswersAreRead(t *testing.T) {
	s := fakecri.Start(t)
	for range 1000 {
		s.AddImage(strings.Repeat("x", 10<<10), nil, nil)
	}
	r := look(t, s)
	if list, err := r.Images(t.Context()); err != nil {
		t.Errorf("listing many images: %v", err)
	} else if len(list) != 1000 {
		t.Errorf("images: got %d, want 1000", len(list))
	}
}

func TestSplitID(t *testing.T) {
	scheme, id, ok := runtime.SplitID("cri-o://ab")
	if !ok {
		t.Error("cri-o://ab is not taken for the ID of a container")
	}
	if scheme != "cri-o" {
		t.Errorf("scheme of cri-o://ab: got %q, want cri-o", scheme)
	}
	if id != "ab" {
		t.Errorf("ID of cri-o://ab: got %q, want ab", id)
	}
}
